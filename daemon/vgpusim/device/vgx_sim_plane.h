/* The common case of sampling: an image of one level, read by a whole warp. */
#ifndef VGX_SIM_PLANE_H
#define VGX_SIM_PLANE_H

#include "vgx_sim_texel.h"

/* Sample for the lanes of `mask`. `x` and `y`: rows of 32 coordinates as the kernel gave them; y is NULL in one
 * dimension. `out`: rows of 32 channels. Returns the lanes that are left for the general way, whose bits are the same.
 */
uint32_t vgx_sim_plane_sample(const struct vgx_sim_texture *t, uint32_t mask, const uint64_t *x, const uint64_t *y,
                              uint64_t *out);

#endif
