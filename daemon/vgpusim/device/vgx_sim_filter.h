/* Linear filters: weights of corners, and sums of them. */
#ifndef VGX_SIM_FILTER_H
#define VGX_SIM_FILTER_H

#include "vgx_sim_texel.h"

enum { VGX_SIM_WHOLE = 256 }; /* the sum of all weights */

/* The texels that a sample is made of: up to 8 corners in each of two levels. */
struct vgx_sim_corners {
  uint32_t count;
  bool raw; /* of integers, which are not fractions yet */
  int32_t weight[16];
  uint8_t pass[16]; /* corners of one plane of one level are summed together */
  struct vgx_sim_texel texel[16];
};

/* Whether the texture's values are floats in memory. */
bool vgx_sim_filter_is_float(const struct vgx_sim_texture *t);

/* Add the corners about a place in a level. `place`: of each axis, in 256ths of a texel from the first one's middle.
 * The corners share the weight `whole`; passes are numbered from `pass`. */
void vgx_sim_filter_add(struct vgx_sim_corners *corners, const struct vgx_sim_texture *t,
                        const struct vgx_sim_level *level, const int64_t *place, int axes, int64_t layer, int whole,
                        uint8_t pass);

/* The weighted sum, rounded as an H200 rounds it. */
struct vgx_sim_texel vgx_sim_filter_sum(const struct vgx_sim_corners *corners, const struct vgx_sim_texture *t);

#endif
