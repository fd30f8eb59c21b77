/* Which ring a call uses, and which calls it must follow. Each client thread has a ring, served by a thread of its own
 * in the worker, so that a launch costs no system call and a thread that waits delays no other. Threads that take
 * turns in one stream push to one ring while it has work of that stream.
 *
 * Order between threads: a call that returned before another began is executed first. A ring executes its records in
 * order. Across rings only shared objects matter: a call that touches streams or events follows the last call that
 * touched them and the last one in the legacy stream; any other call follows all calls. If the call to follow is in
 * another ring and not executed yet, a fence record is pushed first. No call has to follow one that has not returned.
 */
#ifndef VGS_ORDER_H
#define VGS_ORDER_H

#include "vgs_ring.h"
#include "vgs_session.h"

/* As vgs_session_call, on the calling thread's ring. */
CUresult vgs_order_call(struct vgs_ring *own, struct vgs_call *call, bool wait, uint16_t *notices);

/* As vgs_record_begin, on the calling thread's ring. */
void *vgs_order_begin(struct vgs_record *record, uint16_t opcode, uint32_t stream, uint64_t nbytes);

CUresult vgs_order_send(struct vgs_record *record);
void vgs_order_cancel(struct vgs_record *record);

/* Whether the client knows what may still be running, and no notice is pending (vgs_ring_notice). */
bool vgs_order_knows(void);

/* For a thread that has no ring while others do (vgs_ring_any): its call must not overtake records in their rings, so
 * it first waits for them with this function, and then for its own reply. */
CUresult vgs_order_fence_socket(const struct vgs_call *call);

/* Record that a call with asynchronous work was sent on the socket while no thread had a ring. Under the lock of
 * sending. */
void vgs_order_mark_socket(const struct vgs_call *call);

/* Whether the thread's own last record is the last touch of the stream. *entry: the stream's last touch. */
bool vgs_order_is_last(uint32_t stream, uint64_t *entry);

/* The same, and whether the touch before it was the one that made the entry `before`. */
bool vgs_order_is_next(uint32_t stream, uint64_t before, uint64_t *entry);

/* Record that the thread's last record is executed, which the caller knows without a reply. */
void vgs_order_drained(void);

/* --- touches; lock-free ---
 *
 * For each stream or event: the ring that last pushed a record of it and that record's position, and the entry up to
 * which the stream is known to be done. An entry marks one moment of a stream: each touch makes a new one. 0: the
 * object was never touched. */

struct vgs_touch {
  unsigned ring;
  bool mixed;        /* two rings touched it at once: the next record waits for all rings */
  uint64_t position; /* records pushed to the ring, this one included: at least 1 */
};

uint64_t vgs_touch_entry(uint16_t kind, uint32_t id);
struct vgs_touch vgs_touch_of(uint64_t entry);

/* Record a touch. `before` is the entry that it comes after, or VGS_TOUCH_ALONE while there is one ring; if another
 * ring's touch has come between, the new entry is mixed. */
#define VGS_TOUCH_ALONE UINT64_MAX
CUresult vgs_touch_set(uint16_t kind, uint32_t id, uint64_t before, struct vgs_touch touch);

/* The object was touched outside the rings: the next record waits for all rings. */
void vgs_touch_mix(uint16_t kind, uint32_t id);

/* All work that was submitted to a stream before `entry` is done. */
void vgs_touch_set_done(uint32_t stream, uint64_t entry);

/* Whether all work that was submitted to the stream before `entry` is known to be done. */
bool vgs_touch_is_done(uint32_t stream, uint64_t entry);

/* Forget everything: the session is over. */
void vgs_touch_clear(void);

/* Free the table. No thread may be using it. */
void vgs_touch_fini(void);

#endif
