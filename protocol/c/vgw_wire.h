/* The command stream's framing, and the bounded cursor that decodes it (wire.md). Both sides include this. */
#ifndef VGW_WIRE_H
#define VGW_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define VGW_PROTOCOL_VERSION 1
#define VGW_RECORD_NBYTES (4u << 20) /* longest record, header included */
#define VGW_PIECE_NBYTES (1u << 20)  /* longest variable part of the bulk functions; longer data goes in pieces */

/* Request flags. CORRELATED: 8 bytes before the fixed fields are the number of the program's call, for a profiler. */
enum { VGW_WANT_REPLY = 1, VGW_HAS_FD = 2, VGW_CORRELATED = 4 };
enum { VGW_OUTPUT_PENDING = 1, VGW_REASON_PENDING = 2 }; /* reply flags */

/* The client chooses a callback's id. Its flags give the kind: a graph's callback is delivered at each launch; an
 * internal one moves bytes for the client's library, and its node is hidden from the program. */
#define VGW_CALLBACK_OF_GRAPH 0x80000000u
#define VGW_CALLBACK_INTERNAL 0x40000000u
#define VGW_CALLBACK_WHOLE_COPY                                                                                        \
  0x20000000u /* internal; its node and a copy node, in a child graph, form one copy node */

struct vgw_header {
  uint32_t length; /* whole record in bytes, a multiple of 8 */
  uint16_t opcode;
  uint16_t flags;
  uint32_t sequence;
  uint32_t context; /* request: id of the calling thread's context; reply: CUresult as int32_t */
};

_Static_assert(sizeof(struct vgw_header) == 16, "header");

/* vgpuKernelDescribe's answer: this, then `param_count` times struct vgw_param. */
struct vgw_kernel_description {
  int32_t attributes[16]; /* by CUfunction_attribute; INT32_MIN: the driver does not know it */
  uint32_t param_count;
  uint32_t param_nbytes; /* of the whole parameter block */
};

struct vgw_param {
  uint32_t offset;
  uint32_t nbytes;
};

/* vgpuTensorMap's arguments: those of cuTensorMapEncodeTiled and ...Im2col together; unused ones are 0. */
struct vgw_tensor_map {
  uint64_t address;
  uint64_t dims[5], strides[5];
  uint32_t box[5], element_strides[5];
  int32_t lower[3], upper[3];
  int32_t data_type;
  uint32_t rank, channels, pixels;
  int32_t interleave, swizzle, l2_promotion, oob_fill;
  uint8_t map[128]; /* form 3: the map whose address is replaced */
};

static inline uint64_t vgw_pad8(uint64_t nbytes) { return (nbytes + 7) & ~(uint64_t)7; }

/* Reads a record that was copied out of the channel. The first failed read makes every later one fail: callers check
 * `fatal` once, at the end. No check adds to a number that the peer sent, which could wrap. */
struct vgw_cursor {
  const uint8_t *cur;
  const uint8_t *end;
  bool fatal;
  const uint8_t *more, *more_end; /* the second part of the record, read after the first; NULL: none */
};

static inline const void *vgw_take(struct vgw_cursor *c, uint64_t nbytes) {
  if (c->cur == c->end && c->more) {
    c->cur = c->more;
    c->end = c->more_end;
    c->more = NULL;
  }
  if (c->fatal || nbytes > (uint64_t)(c->end - c->cur)) {
    c->fatal = true;
    return NULL;
  }
  const void *p = c->cur;
  uint64_t left = (uint64_t)(c->end - c->cur);
  uint64_t padded = vgw_pad8(nbytes);
  c->cur += padded < left ? padded : left;
  return p;
}

#endif
