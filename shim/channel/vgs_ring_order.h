/* In which ring a call goes, and after what. */
#ifndef VGS_RING_ORDER_H
#define VGS_RING_ORDER_H

#include "vgs_session.h"
#include <stdbool.h>
#include <stdint.h>

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

/* For a thread that has no ring while others do (vgs_ring_any): its call must then wait for its reply, and first, by
 * this function, for what it must not overtake in their rings. */
CUresult vgs_ring_fence_socket(const struct vgs_call *call);

/* A call that leaves work behind was sent on the socket while no thread had a ring: what may still be running is known
 * there, too. Under the lock of sending. */
void vgs_ring_note_socket(const struct vgs_call *call);

/* Whether the stream's last touch is the thread's own last record, and what it is then. */
bool vgs_ring_touched_last(uint32_t stream, uint64_t *entry);

/* The thread knows that what it pushed last has been executed, without having been told in a reply. */
void vgs_ring_drained(void);

#endif
