/* Stream capture: what would be queued becomes a node of a graph. */
#ifndef VGX_SIM_CAPTURE_H
#define VGX_SIM_CAPTURE_H

#include "vgx_sim_internal.h"

bool vgx_sim_is_capturing_locked(CUstream stream);
/* Make `op` a node of the stream's capture, which takes it over when it succeeds. */
CUresult vgx_sim_capture_locked(CUstream stream, struct vgx_sim_op *op);
/* A call that captures do not allow was made on a capturing stream: invalidate the capture. Returns `result`. */
CUresult vgx_sim_capture_lost_locked(CUstream stream, CUresult result);
/* Before work in the legacy stream, or a wait for it: STREAM_CAPTURE_IMPLICIT while a blocking stream of its context
 * captures, and those captures are lost. 0 for other streams. */
CUresult vgx_sim_capture_check_legacy_locked(CUstream stream);
/* Invalidate the stream's capture and return `result`; of the legacy stream, as above; else 0. No lock held. */
CUresult vgx_sim_capture_forbid(CUstream stream, CUresult result);
/* Record an event in a capturing stream; let a stream wait for an event (*handled: either of them is captured). */
CUresult vgx_sim_capture_record_locked(CUstream stream, CUevent event);
CUresult vgx_sim_capture_wait_locked(CUstream stream, CUevent event, bool *handled);
/* CAPTURED_EVENT if the event was last recorded in an active capture: whether it is done is not defined. */
CUresult vgx_sim_capture_event_locked(CUevent event);
void vgx_sim_captured_clear_locked(struct vgx_sim_captured *captured);

/* Add the graph `child` of a launch as a node of the stream's capture, which owns it on success. */
CUresult vgx_sim_capture_child_locked(CUstream stream, CUgraph child);

#endif
