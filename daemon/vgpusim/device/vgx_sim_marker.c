#include "vgx_sim_marker.h"

#include <stdlib.h>

struct vgx_sim_marker *vgx_sim_marker_create(bool timed) {
  struct vgx_sim_marker *marker = calloc(1, sizeof *marker);
  if (marker) {
    marker->refs = 1;
    marker->timed = timed;
  }
  return marker;
}

void vgx_sim_marker_unref_locked(struct vgx_sim_marker *marker) {
  if (--marker->refs == 0)
    free(marker);
}

void vgx_sim_op_destroy(struct vgx_sim_op *op) { free(op); }

struct vgx_sim_op *vgx_sim_marker_op_create(bool timed) {
  struct vgx_sim_op *op = calloc(1, sizeof *op);
  struct vgx_sim_marker *marker = vgx_sim_marker_create(timed);
  if (!op || !marker) {
    free(op);
    free(marker);
    return NULL;
  }
  op->destroy = vgx_sim_op_destroy;
  op->record = marker;
  return op;
}
