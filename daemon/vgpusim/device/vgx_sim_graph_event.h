/* Events of graphs' launches: recorded and waited for. */
#ifndef VGX_SIM_GRAPH_EVENT_H
#define VGX_SIM_GRAPH_EVENT_H

#include "vgx_sim_graph_exec.h"

static inline bool vgx_sim_step_is_event(const struct vgx_sim_step *step) {
  return step->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD || step->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT;
}

/* A launch of `plan` is submitted: record its events, and look up those that it waits for. The launch has a marker for
 * each step of this kind, at its `slot`, and owns a reference to it; NULL: the event was never recorded. NULL with
 * OUT_OF_MEMORY in `result`: nothing has happened. Runtime lock held. */
struct vgx_sim_marker **vgx_sim_graph_events_locked(const struct vgx_sim_plan *plan, CUresult *result);
/* Complete a recorded event, or wait for one. No lock held. */
void vgx_sim_graph_event_run(const struct vgx_sim_step *step, struct vgx_sim_marker *const *markers);
/* Complete the events that the launch has not reached, and drop the references. No lock held. */
void vgx_sim_graph_events_end(const struct vgx_sim_plan *plan, struct vgx_sim_marker **markers);

#endif
