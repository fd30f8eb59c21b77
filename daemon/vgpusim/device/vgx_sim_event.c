/* The state of an event. A node keeps it, also when the program destroys the event. Locking: the runtime lock. */
#include "vgx_sim_event.h"

#include <stdlib.h>

#include "vgx_sim_capture.h"
#include "vgx_sim_marker.h"
#include "vgx_sim_runtime.h"

struct event_op {
  struct vgx_sim_op op;
  CUevent event; /* owns a reference */
};

static void destroy(struct vgx_sim_op *op) {
  vgx_sim_lock();
  vgx_sim_event_unref_locked(((struct event_op *)op)->event);
  vgx_sim_unlock();
  free(op);
}

static CUresult run_outside_a_launch(struct vgx_sim_op *op) {
  (void)op;
  return CUDA_ERROR_UNKNOWN; /* never called: a launch runs these steps by vgx_sim_graph_event_run */
}

CUresult vgx_sim_event_op(CUevent event, bool record, struct vgx_sim_op **op) {
  struct event_op *made = calloc(1, sizeof *made);
  if (!made)
    return CUDA_ERROR_OUT_OF_MEMORY;
  vgx_sim_lock();
  bool alive = event && event->magic == VGX_SIM_EVENT;
  if (alive)
    event->refs++;
  vgx_sim_unlock();
  if (!alive) {
    free(made);
    return CUDA_ERROR_INVALID_VALUE;
  }
  made->op = (struct vgx_sim_op){.run = run_outside_a_launch,
                                 .destroy = destroy,
                                 .kind = record ? VGX_SIM_OP_EVENT_RECORD : VGX_SIM_OP_EVENT_WAIT};
  made->event = event;
  *op = &made->op;
  return CUDA_SUCCESS;
}

CUevent vgx_sim_event_of(const struct vgx_sim_op *op) { return ((const struct event_op *)op)->event; }

void vgx_sim_event_unref_locked(CUevent event) {
  if (--event->refs)
    return;
  if (event->marker)
    vgx_sim_marker_unref_locked(event->marker);
  free(event);
}

void vgx_sim_event_put_locked(CUevent event, struct vgx_sim_marker *marker) {
  vgx_sim_captured_clear_locked(&event->captured);
  if (event->marker)
    vgx_sim_marker_unref_locked(event->marker);
  event->marker = marker;
}
