/* The level of detail of gradients. */
#ifndef VGX_SIM_DETAIL_H
#define VGX_SIM_DETAIL_H

#include <stdint.h>

/* The level in 256ths. `gradient`: for each of two directions, the step of a normalised coordinate on each of `axes`
 * axes; `extent`: the texels of an axis. */
int64_t vgx_sim_detail_level(const float gradient[2][3], const uint32_t *extent, int axes);

#endif
