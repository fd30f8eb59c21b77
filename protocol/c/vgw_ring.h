/* A ring in shared memory: one client thread's command stream, and room for one reply (wire.md, "Rings").
 *
 * Positions are free-running byte counts; `position % VGW_RING_NBYTES` is the place. One producer, one consumer. Each
 * shared word is written by one side alone, and the two sides' words lie on cache lines of their own. The worker
 * trusts none of the client's words: it copies a record out before it reads it, and checks every length against its own
 * limits. */
#ifndef VGW_RING_H
#define VGW_RING_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define VGW_RING_NBYTES (8u << 20)       /* records; a power of two */
#define VGW_RING_REPLY_NBYTES (2u << 20) /* the reply's record */
#define VGW_RING_RECORD_NBYTES                                                                                         \
  (2u << 20)               /* longest record in a ring: shorter than half of it, so padding always fits */
#define VGW_RING_PADDING 0 /* opcode of a record that only fills the end of the ring */
#define VGW_RINGS_MAX 256  /* of a session */

enum { VGW_NOTICE_FAILED = 1, VGW_NOTICE_OUTPUT = 2 }; /* a queued call has failed; the device has printed something */

struct vgw_ring {
  /* Written by the client. `tail` is stored (release) after the records before it. */
  _Alignas(64) _Atomic uint64_t tail;
  _Atomic uint32_t doorbell;     /* futex: the worker sleeps on it; counted up to wake it */
  _Atomic uint32_t client_waits; /* the client sleeps on `reply` or is about to */

  /* Written by the worker. `head` is stored (release) when the records before it are not needed any more. */
  _Alignas(64) _Atomic uint64_t head;
  _Atomic uint64_t executed; /* records executed so far, padding not counted */
  _Atomic uint32_t reply;    /* futex: sequence of the last reply, stored (release) after its bytes */

  /* Written by the worker, rarely: the client reads them at every call, so they are on another cache line than the
   * words that change with every record. */
  _Alignas(64) _Atomic uint32_t
      worker_waits;        /* the number of the worker's sleep on `doorbell`, set before it begins; 0: it is awake */
  _Atomic uint32_t notice; /* VGW_NOTICE_*: what the reply to the next waiting call announces */

  _Alignas(4096) uint8_t records[VGW_RING_NBYTES];
  _Alignas(4096) uint8_t replies[VGW_RING_REPLY_NBYTES];
};

_Static_assert(offsetof(struct vgw_ring, head) == 64, "the sides' words are apart");
_Static_assert(offsetof(struct vgw_ring, worker_waits) == 128, "layout");
_Static_assert(offsetof(struct vgw_ring, records) == 4096, "layout");
_Static_assert(sizeof(struct vgw_ring) == 4096 + VGW_RING_NBYTES + VGW_RING_REPLY_NBYTES, "layout");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2, "shared words need lock-free atomics");

#endif
