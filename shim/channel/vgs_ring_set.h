/* Opening and closing the client's rings, and giving each thread its own. */
#ifndef VGS_RING_SET_H
#define VGS_RING_SET_H

#include "vgs_ring.h"

/* Begin a new session. `offered`: its host serves rings. */
void vgs_ring_start(bool offered);

/* Rings lie in the session's share of a region (vgs_region.h), now that it is mapped. Before the first call. */
void vgs_ring_use_region(void);

/* The calling thread's ring; the first time it opens one. NULL: use the socket. */
struct vgs_ring *vgs_ring_ready(void);

/* Whether calls of this thread travel in a ring by now. */
bool vgs_ring_active(void);

/* Around a wait that spins. Returns for how many ns it may go on behind the spin time, because fewer than half of the
 * processors spin so. Behind VGS_RING_YIELD_TURNS pauses (about 15 us) it lets others run now and then: what it waits
 * for may need its processor. */
enum { VGS_RING_YIELD_TURNS = 256 };
uint64_t vgs_ring_spin_begin(void);
void vgs_ring_spin_end(void);

/* Unmap all rings. False: a thread is inside a call, and nothing was done. */
bool vgs_ring_end(void);

/* In a forked child: the rings are the parent's. */
void vgs_ring_abandon(void);

#endif
