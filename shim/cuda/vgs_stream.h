/* Streams: which one a call means, and waiting for the work of a stream or a context. */
#ifndef VGS_STREAM_H
#define VGS_STREAM_H

#include "vgs_area.h"
#include "vgs_objects.h"

/* Wire id of a stream argument: 0 for the legacy default stream (handles 0 and 1), an id made at first use for the
 * thread's own default stream (handle 2), else the stream's. `object`, if wanted: NULL for the legacy stream. Returns:
 * INVALID_HANDLE for what is not a stream of the current context's session; OUT_OF_MEMORY. */
CUresult vgs_stream_find(CUstream stream, uint32_t *id, struct vgs_stream **object);

/* The same for a call that leaves work in the stream or waits for it: refuses the legacy stream where a capture makes
 * it unusable (vgs_capture_check_legacy). */
CUresult vgs_stream_id(CUstream stream, uint32_t *id, struct vgs_stream **object);

/* The object of a stream that is about to be made, in the entered context; NULL: out of memory. */
struct vgs_stream *vgs_stream_create(uint32_t flags, int priority);
int vgs_stream_priority(int priority); /* within the device's range */

/* The stream a function without a stream parameter uses: legacy, or the thread's own in a _ptds variant. */
CUstream vgs_stream_default(void);

/* --- waiting ---
 *
 * The device itself writes a flag on completion, which is polled for a bounded time; after that the worker is asked,
 * which also reports faults. */

/* Wait until the stream (by its wire id; not capturing) has finished all its work; returns at once if it has none.
 * Errors: of earlier queued calls, faults, a lost session. */
CUresult vgs_wait_stream(uint32_t stream);

/* As vgs_wait_stream, but always asks the device; uses flag 0 of the caller's area, if it is not NULL. */
CUresult vgs_wait_stream_with(struct vgs_area *area, uint32_t stream);

/* Whether the stream is known to have done everything. */
bool vgs_wait_stream_is_done(uint32_t stream);

/* A reply has shown that all work submitted to the stream before `entry` (vgs_order.h) is done. */
void vgs_wait_set_done(uint32_t stream, uint64_t entry);

CUresult vgs_wait_context(void);

/* Enqueue an operation that sets a flag of the area when the stream reaches it. */
CUresult vgs_wait_push_flag(struct vgs_area *area, unsigned slot, uint32_t stream);

/* Watch a flag until it is set or the time for spinning is over; false: it is not set yet. */
bool vgs_wait_spin(struct vgs_area *area, unsigned slot);
bool vgs_wait_is_set(struct vgs_area *area, unsigned slot);

#endif
