/* Stream capture: what would be queued becomes a node of a graph. */
#ifndef VGX_SIM_CAPTURE_H
#define VGX_SIM_CAPTURE_H

#include "vgx_sim_internal.h"

bool vgx_sim_is_capturing_locked(CUstream stream);
/* Make `op` a node of the stream's capture, which takes it over when it succeeds. */
CUresult vgx_sim_capture_locked(CUstream stream, struct vgx_sim_op *op);
/* A call that captures do not allow was made on a capturing stream: invalidate the capture. Returns `result`. */
CUresult vgx_sim_capture_lost_locked(CUstream stream, CUresult result);
/* The same if the stream is capturing, else 0. No lock held. */
CUresult vgx_sim_capture_forbid(CUstream stream, CUresult result);
/* An event is recorded in a capturing stream; a stream is to wait for an event (*handled: by its capture). */
CUresult vgx_sim_capture_record_locked(CUstream stream, CUevent event);
CUresult vgx_sim_capture_wait_locked(CUstream stream, CUevent event, bool *handled);
/* CAPTURED_EVENT if the event was last recorded in an active capture: whether it is done is not defined. */
CUresult vgx_sim_capture_event_locked(CUevent event);
void vgx_sim_captured_clear_locked(struct vgx_sim_captured *captured);

/* A launch in a capturing stream: `child`, taken over when it succeeds, becomes a node. */
CUresult vgx_sim_capture_child_locked(CUstream stream, CUgraph child);

#endif
