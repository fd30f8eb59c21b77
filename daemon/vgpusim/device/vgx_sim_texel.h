/* One texel of a texture, and where it is. */
#ifndef VGX_SIM_TEXEL_H
#define VGX_SIM_TEXEL_H

#include <string.h>

#include "vgx_sim_array.h"

enum { VGX_SIM_WRAP, VGX_SIM_CLAMP, VGX_SIM_MIRROR, VGX_SIM_BORDER }; /* CUaddress_mode */

struct vgx_sim_texel {
  uint32_t bits[4]; /* of floats, or integers where the texture is read as such */
};

static inline float vgx_sim_as_float(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static inline uint32_t vgx_sim_as_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

/* An axis's address mode as it takes effect. */
int vgx_sim_texel_mode(const struct vgx_sim_texture *t, int axis);

/* The index in `n` texels after applying the address mode; -1: the border. */
int64_t vgx_sim_texel_index(const struct vgx_sim_texture *t, int axis, int64_t i, int64_t n);

/* Whether a channel's bytes are in sRGB. */
bool vgx_sim_texel_is_srgb(const struct vgx_sim_texture *t, uint32_t c);

/* The power of two that a value which was in sRGB is counted by: that of the last of eight values in a row. */
float vgx_sim_texel_scale(float light);

/* The texel at these indices; one below 0 is the border. Channels that the texture does not have are 0. With `raw`,
 * integers stay integers. */
struct vgx_sim_texel vgx_sim_texel_read(const struct vgx_sim_texture *t, const struct vgx_sim_level *level, int64_t x,
                                        int64_t y, int64_t z, bool raw);

#endif
