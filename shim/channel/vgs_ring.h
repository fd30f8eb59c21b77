/* The command stream through shared memory: a ring for each client thread (vgw_ring.h), served by a thread of its own
 * in the worker, so that a launch costs no system call and a thread that waits delays no other. Threads that take
 * turns in one stream push to one ring while it has work of that stream.
 *
 * Order between threads: a call that returned before another began is executed first. A ring executes its records in
 * order. Across rings only shared objects matter: a call that touches streams or events follows the last call that
 * touched them and the last one in the legacy stream; any other call follows all calls. If the call to follow is in
 * another ring and not executed yet, a fence record is pushed first. No call has to follow one that has not returned.
 */
#ifndef VGS_RING_H
#define VGS_RING_H

#include "vgs_ring_set.h"
#include "vgs_session.h"

/* As vgs_session_call, on the calling thread's ring. */
CUresult vgs_ring_call(struct vgs_ring *own, struct vgs_call *call, bool wait, uint16_t *notices);

/* As vgs_record_begin, on the calling thread's ring. */
void *vgs_ring_begin(struct vgs_record *record, uint16_t opcode, uint32_t stream, uint64_t nbytes);

CUresult vgs_ring_send(struct vgs_record *record);
void vgs_ring_cancel(struct vgs_record *record);

/* Whether the client knows what may still be running, and no notice is pending (vgs_ring_notice). */
bool vgs_ring_knows(void);

/* VGW_NOTICE_*: what the reply to the thread's next waiting call will announce. */
uint32_t vgs_ring_notice(void);

/* For a thread that has no ring while others do (vgs_ring_any): its call must not overtake records in their rings, so
 * it first waits for them with this function, and then for its own reply. */
CUresult vgs_ring_fence_socket(const struct vgs_call *call);

/* Record that a call with asynchronous work was sent on the socket while no thread had a ring. Under the lock of
 * sending. */
void vgs_ring_mark_socket(const struct vgs_call *call);

/* Whether the thread's own last record is the last touch of the stream. *entry: the stream's last touch. */
bool vgs_ring_touched_last(uint32_t stream, uint64_t *entry);

/* Record that the thread's last record is executed, which the caller knows without a reply. */
void vgs_ring_drained(void);

#endif
