/* The command stream through shared memory: a ring for each client thread (vgw_ring.h), served by a thread of its own
 * in the worker, so that a launch costs no system call and a thread that waits delays no other. Threads that use one
 * stream by turns push to one ring while it has work of that stream.
 *
 * Order between threads: a call that returned before another began is executed first. Within a ring that is its order.
 * Across rings it matters only through what both calls touch: a call that touches streams or events is ordered after
 * the last call that touched them, and after the last one in the legacy stream; any other call after everything. Where
 * that is in another ring and not executed yet, a fence record goes first. A call that has not returned orders nothing.
 */
#ifndef VGS_RING_H
#define VGS_RING_H

#include "vgs_session.h"

/* A new session, whose host serves rings or not. */
void vgs_ring_start(bool offered);

/* Rings lie in the session's share of a region (vgs_region.h), now that it is mapped. Before the first call. */
void vgs_ring_use_region(void);

/* The calling thread's ring; the first time it opens one. NULL: use the socket. */
struct vgs_ring *vgs_ring_ready(void);

/* For a thread that has none: whether others do. Its call must then wait for its reply, and first, by this function,
 * for what it must not overtake in their rings. */
bool vgs_ring_any(void);
CUresult vgs_ring_fence_socket(const struct vgs_call *call);

/* A call that leaves work behind was sent on the socket while no thread had a ring: what may still be running is known
 * there, too. Under the lock of sending. */
void vgs_ring_note_socket(const struct vgs_call *call);

/* As vgs_session_call, on the calling thread's ring. */
CUresult vgs_ring_call(struct vgs_ring *own, struct vgs_call *call, bool wait, uint16_t *notices);

/* As vgs_record_begin, on the calling thread's ring. */
void *vgs_ring_begin(struct vgs_record *record, uint16_t opcode, uint32_t stream, uint64_t nbytes);

/* Whether calls of this thread travel in a ring by now. */
bool vgs_ring_active(void);

/* Whether it is known what may still be running, and nothing else is to be told (vgs_ring_notice). */
bool vgs_ring_knows(void);

/* How long a wait may spin before it sleeps, in ns; 0: not at all. */
int64_t vgs_ring_spin_ns(void);

int vgs_ring_processors(void); /* that this process may use */

/* VGW_NOTICE_*: what the thread's next waiting call will be told. */
uint32_t vgs_ring_notice(void);

/* Whether the stream's last touch is the thread's own last record, and what it is then. */
bool vgs_ring_touched_last(uint32_t stream, uint64_t *entry);

/* The thread knows that what it pushed last has been executed, without having been told in a reply. */
void vgs_ring_drained(void);

/* Give the memory back. False: a thread is inside a call, and nothing was done. */
bool vgs_ring_end(void);

/* In a forked child: the rings are the parent's. */
void vgs_ring_abandon(void);

#endif
