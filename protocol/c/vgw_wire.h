/* The command stream (wire.md): records and the bounded cursor that decodes them, rings in shared memory and sleeping
 * on their words. Both sides include this. */
#ifndef VGW_WIRE_H
#define VGW_WIRE_H

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define VGW_PROTOCOL_VERSION 1
#define VGW_RECORD_NBYTES (4u << 20) /* longest record, header included */
#define VGW_PIECE_NBYTES (1u << 20)  /* longest variable part of the bulk functions; longer data goes in pieces */

/* Request flags. CORRELATED: 8 bytes before the fixed fields are the number of the program's call, for a profiler.
 * SHORT_REPLY, in a ring: the client also looks for the reply beside the word that announces it. */
enum { VGW_WANT_REPLY = 1, VGW_HAS_FD = 2, VGW_CORRELATED = 4, VGW_SHORT_REPLY = 8 };
#define VGW_HOST_STACK (1ull << 63) /* in that number: it is of a host call stack, for the sanitizer's reports */
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
  int32_t lower[3], upper[3]; /* form 4: the first of each, and lower[1] is its mode */
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

/* --- rings --- */

/* A ring in shared memory: one client thread's command stream, and room for one reply (wire.md, "Rings").
 *
 * Positions are free-running byte counts; `position % VGW_RING_NBYTES` is the place. One producer, one consumer. Each
 * shared word is written by one side alone, and the two sides' words lie on cache lines of their own. The worker
 * trusts none of the client's words: it copies a record out before it reads it, and checks every length against its own
 * limits.
 *
 * A side that waits polls one line. What is short lies on that line, so that no second one has to be fetched from the
 * other side's processor: a reply, or a copy of the record that was pushed last. */
#define VGW_RING_NBYTES (8u << 20)       /* records; a power of two */
#define VGW_RING_REPLY_NBYTES (2u << 20) /* the reply's record */
#define VGW_RING_RECORD_NBYTES                                                                                         \
  (2u << 20)                /* longest record in a ring: shorter than half of it, so padding always fits */
#define VGW_RING_PADDING 0  /* opcode of a record that only fills the end of the ring */
#define VGW_RINGS_MAX 256   /* of a session */
#define VGW_SHORT_NBYTES 40 /* longest record or reply on the line of the word that announces it */

enum { VGW_NOTICE_FAILED = 1, VGW_NOTICE_OUTPUT = 2 }; /* a queued call has failed; the device has printed something */

struct vgw_ring {
  /* Written by the client. `tail` is stored (release) after the records before it. */
  _Alignas(64) _Atomic uint64_t tail;
  _Atomic uint32_t doorbell;     /* futex: the worker sleeps on it; counted up to wake it */
  _Atomic uint32_t client_waits; /* the client sleeps on `reply` or is about to */
  /* The position of the record that `short_record` holds, plus 1; 0 while it changes. */
  _Atomic uint64_t short_at;
  _Atomic uint64_t short_record[VGW_SHORT_NBYTES / 8];

  /* Written by the worker. `head` is stored (release) when the records before it are not needed any more. */
  _Alignas(64) _Atomic uint64_t head;
  _Atomic uint64_t executed;                  /* records executed so far, padding not counted */
  _Atomic uint32_t reply;                     /* futex: sequence of the last reply, stored (release) after its bytes */
  uint64_t short_reply[VGW_SHORT_NBYTES / 8]; /* the last reply, if its header has that sequence; else see `replies` */

  /* Written by the worker, rarely: the client reads them at every call, so they are on another cache line than the
   * words that change with every record. */
  _Alignas(64) _Atomic uint32_t
      worker_waits;        /* the number of the worker's sleep on `doorbell`, set before it begins; 0: it is awake */
  _Atomic uint32_t notice; /* VGW_NOTICE_*: what the reply to the next waiting call announces */

  _Alignas(4096) uint8_t records[VGW_RING_NBYTES];
  _Alignas(4096) uint8_t replies[VGW_RING_REPLY_NBYTES];
};

_Static_assert(offsetof(struct vgw_ring, head) == 64, "the sides' words are apart");
_Static_assert(offsetof(struct vgw_ring, short_reply) + VGW_SHORT_NBYTES == 128, "a short reply is on one line");
_Static_assert(offsetof(struct vgw_ring, worker_waits) == 128, "layout");
_Static_assert(offsetof(struct vgw_ring, records) == 4096, "layout");
_Static_assert(sizeof(struct vgw_ring) == 4096 + VGW_RING_NBYTES + VGW_RING_REPLY_NBYTES, "layout");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2, "shared words need lock-free atomics");

/* Sleep while a word of a ring holds `value`, at most `timeout_ms`. Not the private kind of futex: the other side is
 * another process. 0 or -errno (-EAGAIN: it holds another value already). */
static inline int vgw_futex_wait(_Atomic uint32_t *word, uint32_t value, int timeout_ms) {
  struct timespec timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};
  return syscall(SYS_futex, word, FUTEX_WAIT, value, &timeout, NULL, 0) ? -errno : 0;
}

static inline void vgw_futex_wake(_Atomic uint32_t *word) {
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

#endif
