/* Events of graphs' launches.
 *
 * A launch records the graph's events when it is submitted, as cuEventRecord does: whoever waits for one from then on
 * waits until the launch has reached its node. A node that waits for an event waits for what was recorded when the
 * launch was submitted; the steps before it in the same launch count as recorded. Locking: the runtime lock. */
#include "vgx_sim_graph_event.h"

#include <stdlib.h>

#include "vgx_sim_event.h"
#include "vgx_sim_marker.h"
#include "vgx_sim_queue.h"
#include "vgx_sim_runtime.h"

struct vgx_sim_marker **vgx_sim_graph_events_locked(const struct vgx_sim_plan *plan, CUresult *result) {
  *result = CUDA_SUCCESS;
  if (!plan->slots)
    return NULL;
  struct vgx_sim_marker **markers = calloc(plan->slots, sizeof *markers);
  for (uint32_t i = 0; markers && i < plan->count; i++) { /* first all that can fail */
    const struct vgx_sim_step *step = &plan->steps[i];
    if (step->type != CU_GRAPH_NODE_TYPE_EVENT_RECORD)
      continue;
    const CUevent event = vgx_sim_event_of(step->work->op);
    markers[step->slot] = vgx_sim_marker_create(!(event->flags & CU_EVENT_DISABLE_TIMING));
    if (!markers[step->slot]) {
      for (uint32_t k = 0; k < plan->slots; k++)
        free(markers[k]);
      free(markers);
      markers = NULL;
    }
  }
  if (!markers) {
    *result = CUDA_ERROR_OUT_OF_MEMORY;
    return NULL;
  }
  for (uint32_t i = 0; i < plan->count; i++) {
    const struct vgx_sim_step *step = &plan->steps[i];
    if (!vgx_sim_step_is_event(step))
      continue;
    CUevent event = vgx_sim_event_of(step->work->op);
    if (step->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD)
      vgx_sim_event_put_locked(event, markers[step->slot]);
    else
      markers[step->slot] = event->marker;
    if (markers[step->slot])
      markers[step->slot]->refs++;
  }
  return markers;
}

void vgx_sim_graph_event_run(const struct vgx_sim_step *step, struct vgx_sim_marker *const *markers) {
  struct vgx_sim_marker *marker = markers[step->slot];
  if (!marker)
    return;
  vgx_sim_lock();
  if (step->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD)
    vgx_sim_marker_complete_locked(marker);
  while (!marker->done)
    vgx_sim_wait_progress_locked();
  vgx_sim_unlock();
}

void vgx_sim_graph_events_end(const struct vgx_sim_plan *plan, struct vgx_sim_marker **markers) {
  if (!markers)
    return;
  vgx_sim_lock();
  for (uint32_t i = 0; i < plan->count; i++) {
    const struct vgx_sim_step *step = &plan->steps[i];
    if (!vgx_sim_step_is_event(step) || !markers[step->slot])
      continue;
    if (step->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD)
      vgx_sim_marker_complete_locked(markers[step->slot]);
    vgx_sim_marker_unref_locked(markers[step->slot]);
  }
  vgx_sim_unlock();
  free(markers);
}
