/* Waiting for the work of a stream, an event or a context. The device itself writes a flag on completion, which is
 * polled here for a bounded time; after that the worker is asked, which also reports faults. */
#ifndef VGS_WAIT_H
#define VGS_WAIT_H

#include "vgs_area.h"
#include "vgw_cuda.h"

/* Wait until the stream (by its wire id; not capturing) has finished all its work; returns at once if it has none.
 * Errors: of earlier queued calls, faults, a lost session. */
CUresult vgs_wait_stream(uint32_t stream);

/* As vgs_wait_stream, but always asks the device; uses flag 0 of the caller's area, if it is not NULL. */
CUresult vgs_wait_stream_with(struct vgs_area *area, uint32_t stream);

/* Whether the stream is known to have done everything. */
bool vgs_wait_stream_is_done(uint32_t stream);

/* A reply has shown that all work submitted to the stream before `entry` (vgs_progress.h) is done. */
void vgs_wait_set_done(uint32_t stream, uint64_t entry);

CUresult vgs_wait_context(void);

/* Enqueue an operation that sets a flag of the area when the stream reaches it. */
CUresult vgs_wait_push_flag(struct vgs_area *area, unsigned slot, uint32_t stream);

/* Watch a flag until it is set or the time for spinning is over; false: it is not set yet. */
bool vgs_wait_spin(struct vgs_area *area, unsigned slot);
bool vgs_wait_is_set(struct vgs_area *area, unsigned slot);

#endif
