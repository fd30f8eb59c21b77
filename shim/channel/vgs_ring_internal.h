/* Rings inside the client: what vgs_ring.c (a call in a ring), vgs_ring_order.c (in which ring, and after what) and
 * vgs_ring_set.c (which rings there are) share. */
#ifndef VGS_RING_INTERNAL_H
#define VGS_RING_INTERNAL_H

#include "vgs_ring.h"
#include "vgw_ring.h"

/* Who is in a ring: nobody; a thread that pushes, which is soon over; its own thread, which waits for a reply. */
enum { VGS_RING_FREE, VGS_RING_PUSHING, VGS_RING_WAITING };

/* A place in the order of a ring's records; position 0: none. */
struct vgs_ring_mark {
  unsigned ring;
  uint64_t position;
};

/* Everything but what is said to be atomic belongs to the thread that is inside. */
struct vgs_ring {
  _Alignas(64) int inside; /* atomic; VGS_RING_* */
  bool taken;              /* by a thread, as its own; under the lock of vgs_ring_set.c */

  /* What follows is zeroed when the ring is opened. */
  struct vgw_ring *shared;
  uint64_t tail;
  uint64_t head;       /* the worker's, as last known: its line is fetched only when the ring seems full */
  uint64_t prefetched; /* up to here its lines are ours, or on their way */
  uint64_t populated;  /* bytes of records that have pages */
  uint64_t pushed;     /* records */
  uint64_t returned;   /* atomic; records whose call has returned: what other rings may have to wait for */
  uint32_t sequence;
  uint32_t woken;                 /* the sleep of the worker's that we ended last */
  struct vgs_ring_mark last;      /* what the thread whose own it is has noted last; that thread's */
  uint64_t fenced[VGW_RINGS_MAX]; /* what the next record comes after in other rings, by fences before it */
};

extern __attribute__((visibility("hidden"))) struct vgs_ring vgs_rings[VGW_RINGS_MAX];

/* vgs_rings[0..n) may be open. The memory of those that are stays while the caller is in any ring. */
unsigned vgs_ring_count(void);

/* No futex and no descriptor reaches the other side, which is another machine. */
bool vgs_ring_in_region(void);

/* Enter the calling thread's own ring. False: its session has ended; leave it all the same. */
bool vgs_ring_enter(struct vgs_ring *ring);

/* The same, if it has one already; NULL: it has not, or the session has ended, and there is nothing to leave. */
struct vgs_ring *vgs_ring_enter_own(void);

/* Enter another thread's while in one's own; false: someone is in it for longer. */
bool vgs_ring_try_enter(struct vgs_ring *ring);
void vgs_ring_leave(struct vgs_ring *ring);

/* Between attempts to go on: true as long as there is hope. `turns` counts them, from 0. */
bool vgs_ring_nap(int *turns);

/* Append a record that nobody waits for. */
CUresult vgs_ring_push(struct vgs_ring *ring, const void *record, uint32_t nbytes);

/* The ring that a call which nobody waits for goes into: `own`, or one that was entered for it. */
struct vgs_ring *vgs_ring_choose(struct vgs_ring *own, const struct vgs_touched *touched, uint32_t count,
                                 uint64_t nbytes);

/* Wait, in the worker, for what this call must not overtake. `before` becomes what it comes after. `ring` NULL: on the
 * socket, as for vgs_ring_fence_socket. */
CUresult vgs_ring_push_fences(struct vgs_ring *ring, const struct vgs_touched *touched, uint32_t count,
                              uint64_t before[]);

/* The call was pushed: later calls that touch the same come after it. */
CUresult vgs_ring_note(struct vgs_ring *own, struct vgs_ring *ring, const struct vgs_touched *touched, uint32_t count,
                       const uint64_t before[]);

#endif
