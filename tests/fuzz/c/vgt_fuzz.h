/* Hostile records in process: a session of the executor over the simulator, with a socket and two rings that work at
 * the same time, and a search that keeps the inputs that execute code which no earlier input did. */
#ifndef VGT_FUZZ_H
#define VGT_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { VGT_CHANNELS = 3, VGT_SOCKET = 2, VGT_INPUT_NBYTES = 128 << 10, VGT_RECORD_NBYTES = 8 << 10, VGT_WILD = 20 };

/* Precedes each record of an input; `nbytes`, the length of the record, is a multiple of 8. */
struct vgt_step {
  uint32_t channel; /* ring 0 or 1, or the socket */
  uint32_t nbytes;
};

struct vgt_input {
  uint32_t nbytes, steps;
  uint32_t walk; /* number of the walk that is run instead of the records (vgt_fuzz_walks.h); 0: the records */
  _Alignas(8) uint8_t data[VGT_INPUT_NBYTES];
};

/* What the description says of a record (vgt_grammar.h, written by tests/fuzz/grammar.py). */
enum vgt_meaning {
  VGT_NUMBER,
  VGT_ADDRESS,
  VGT_SMALL,
  VGT_ONE,
  VGT_ZERO,
  VGT_WINDOW, /* an address of the client's pinned memory */
  VGT_PAGES,  /* a length of a few pages, in bytes */
  VGT_CREATES,
  VGT_HANDLE,
  VGT_DEVICE,
  VGT_KERNEL_KIND,
  VGT_CONTAINER_KIND,
  VGT_KERNEL,
  VGT_LENGTH, /* length of a part; `of` 0 or VGT_SHORT: of a reply's part */
  VGT_TENSOR_MAP_NBYTES,
  VGT_FIELD_BYTES,
  VGT_CONDITION, /* a handle of a graph's condition */
  VGT_IMAGE,     /* an image's id, new or of an upload that has begun */
  VGT_OFFERED,   /* the length of an image that is offered */
  VGT_RESERVED,  /* an address of pinned memory that the opening has reserved */
  VGT_BOOL,
  VGT_FORM,   /* of a tensor map */
  VGT_MARKED, /* the number of a function that a graph calls */
};
struct vgt_field {
  uint16_t nbytes;
  uint8_t meaning, of; /* `of`: a handle's kind, or the number of a part, from 1 */
};
enum vgt_content {
  VGT_PART_BYTES,
  VGT_PART_NODES,
  VGT_PART_NAME,
  VGT_PART_ATTRIBUTES,
  VGT_PART_WHOLE,
  VGT_PART_ROWS, /* bytes, and at least some */
  VGT_PART_GRAPHS,
  VGT_PART_PAGES /* of the opening's reserved memory, mostly */
};
enum { VGT_SHORT = 255 };
enum { VGT_LAST_OBJECT = 6 }; /* of each kind that the opening makes; its function has two parameters */
enum { VGT_WALKS_MAX = 128 };
enum { VGT_RECORDED_NBYTES = 1 << 20 };
enum { VGT_PAGE = 4096, VGT_RESERVED_PAGE = 12, VGT_RESERVED_PAGES = 4 };
struct vgt_part {
  uint32_t nbytes, most; /* bytes of an element; maximum number of elements */
  uint8_t content, same; /* `same`: index of the part with the same number of elements, or of this part */
};
struct vgt_record {
  const char *name;
  uint16_t opcode, first, count; /* `first` and `count`: its fields in vgt_fields */
  uint16_t first_part, part_count;
  uint8_t rare; /* a draw is accepted 4 * `rare` times in a thousand; 0: always */
  bool waits, context, on_socket, has_fd;
};

/* xorshift64*: the same numbers from the same seed everywhere. */
struct vgt_random {
  uint64_t state;
};
uint64_t vgt_next(struct vgt_random *random);
uint32_t vgt_below(struct vgt_random *random, uint32_t end);

/* Make a fresh input of `steps` records; of a thousand records, `wild` are broken on purpose. */
void vgt_make(struct vgt_random *random, struct vgt_input *input, uint32_t steps, uint32_t wild);
/* Mutate an input that was kept, using pieces of `other`. */
void vgt_mutate(struct vgt_random *random, struct vgt_input *input, const struct vgt_input *other);

/* Change a recorded session's calls so that they fit after the opening of a session: ids, addresses, images. */
void vgt_adopt(struct vgt_random *random, struct vgt_input *input);

/* Write the first records of a session, for its socket, to `out`; return their length in bytes. */
size_t vgt_opening(uint8_t *out, size_t capacity);
extern uint64_t vgt_addresses[4];  /* the session's first allocations */
extern uint64_t vgt_conditions[2]; /* handles of conditions of its first graphs */

/* What is decided for a process: `SHARED`: work waits for the turns of two tenants that share the device, of which
 * another thread is one; `LIMITED`: the tenant's device memory is limited as on a card. */
enum vgt_process { VGT_SHARED = 1, VGT_LIMITED = 2, VGT_PROCESSES = 8 };
/* Serve `input` in a session of its own; return how many records its rings executed. SIGALRM kills a hung session. */
uint64_t vgt_session_run(const struct vgt_input *input);
/* Whether the process can serve no further session after the last one. */
bool vgt_session_is_last(void);
/* Whether the last session's threads ended in time, so that it let go of what it had. A worker's process ends in any
 * case; here, a thread that waits in the backend for what will not happen keeps the session's memory and descriptors.
 */
bool vgt_session_let_go(void);

/* Members of a request that launches a kernel. */
#define VGT_ONE_THREAD .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1

#endif
