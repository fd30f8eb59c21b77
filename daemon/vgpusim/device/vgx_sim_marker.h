/* Positions in a stream that other streams wait for. */
#ifndef VGX_SIM_MARKER_H
#define VGX_SIM_MARKER_H

#include "vgx_sim_internal.h"

struct vgx_sim_marker *vgx_sim_marker_create(bool timed);
void vgx_sim_marker_unref_locked(struct vgx_sim_marker *marker);

/* An operation without work that records a new marker, `record`, whose reference it owns. NULL: no memory. */
struct vgx_sim_op *vgx_sim_marker_op_create(bool timed);
/* The `destroy` of operations that consist of nothing but their struct. */
void vgx_sim_op_destroy(struct vgx_sim_op *op);

#endif
