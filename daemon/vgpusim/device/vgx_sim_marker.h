/* Positions in a stream that other streams wait for. */
#ifndef VGX_SIM_MARKER_H
#define VGX_SIM_MARKER_H

#include "vgx_sim_internal.h"

struct vgx_sim_marker *vgx_sim_marker_create(bool timed);
void vgx_sim_marker_unref_locked(struct vgx_sim_marker *marker);

#endif
