/* Textures and surfaces. */
#ifndef VGX_SIM_TEXTURE_H
#define VGX_SIM_TEXTURE_H

#include "vgx_sim_array.h"

/* The object behind a kernel's handle; NULL: invalid. */
const struct vgx_sim_texture *vgx_sim_texture_of(uint64_t handle, bool surface);

#endif
