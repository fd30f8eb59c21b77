#include "vgx_sim_texel.h"

#include <math.h>

int vgx_sim_texel_mode(const struct vgx_sim_texture *t, int axis) {
  int mode = t->cubemap ? VGX_SIM_CLAMP : t->address_mode[axis];
  bool any = t->normalized || t->cubemap || mode == VGX_SIM_BORDER; /* the others need normalised coordinates */
  return any ? mode : VGX_SIM_CLAMP;
}

int64_t vgx_sim_texel_index(const struct vgx_sim_texture *t, int axis, int64_t i, int64_t n) {
  if (i >= 0 && i < n)
    return i;
  switch (vgx_sim_texel_mode(t, axis)) {
  case VGX_SIM_BORDER:
    return -1;
  case VGX_SIM_WRAP:
    return (i % n + n) % n;
  case VGX_SIM_MIRROR:
    i = (i % (2 * n) + 2 * n) % (2 * n);
    return i < n ? i : 2 * n - 1 - i;
  default:
    return i < 0 ? 0 : n - 1;
  }
}

static float half_to_float(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, mantissa = half & 0x3ff;
  if (exponent == 31)
    return vgx_sim_as_float(sign | 0x7f800000 | mantissa << 13);
  if (exponent)
    return vgx_sim_as_float(sign | (exponent + 112) << 23 | mantissa << 13);
  return vgx_sim_as_float(sign | vgx_sim_as_bits((float)mantissa * 0x1p-24f));
}

static uint32_t fraction(int value, int most) {
  return vgx_sim_as_bits((float)(value > -most ? value : -most) / (float)most);
}

/* The channels of a texel in memory. */
static void decode(const struct vgx_sim_texture *t, const uint8_t *at, bool raw, uint32_t *bits) {
  uint16_t words[4] = {0};
  uint32_t count = t->channels <= 4 ? t->channels : 4;
  switch (t->format) {
  case CU_AD_FORMAT_UNSIGNED_INT8:
    for (uint32_t c = 0; c < count; c++)
      bits[c] = raw ? at[c] : fraction(at[c], UINT8_MAX);
    return;
  case CU_AD_FORMAT_SIGNED_INT8:
    for (uint32_t c = 0; c < count; c++)
      bits[c] = raw ? (uint32_t)(int8_t)at[c] : fraction((int8_t)at[c], INT8_MAX);
    return;
  case CU_AD_FORMAT_UNSIGNED_INT16:
    memcpy(words, at, 2 * (size_t)count);
    for (uint32_t c = 0; c < count; c++)
      bits[c] = raw ? words[c] : fraction(words[c], UINT16_MAX);
    return;
  case CU_AD_FORMAT_SIGNED_INT16:
    memcpy(words, at, 2 * (size_t)count);
    for (uint32_t c = 0; c < count; c++)
      bits[c] = raw ? (uint32_t)(int16_t)words[c] : fraction((int16_t)words[c], INT16_MAX);
    return;
  case CU_AD_FORMAT_HALF:
    memcpy(words, at, 2 * (size_t)count);
    for (uint32_t c = 0; c < count; c++)
      bits[c] = vgx_sim_as_bits(half_to_float(words[c]));
    return;
  default:
    memcpy(bits, at, 4 * (size_t)count);
  }
}

/* The nearest multiple of 1 / `most`; of two equally near ones the greater. */
static uint32_t steps(float value, float least, int most, bool raw) {
  int count = (int)floorf(fminf(fmaxf(value, least), 1) * (float)most + 0.5f);
  return raw ? (uint32_t)count : fraction(count, most);
}

/* The nearest number of half precision; of two equally near ones that of the greater magnitude. */
static float to_half(float value) {
  int exponent;
  if (!isfinite(value) || value == 0)
    return value;
  frexpf(value, &exponent);
  float unit = ldexpf(1, exponent - 11 < -24 ? -24 : exponent - 11);
  return roundf(value / unit) * unit;
}

/* The lower bits of a word as an integer of the texture's format. */
static uint32_t narrowed(const struct vgx_sim_texture *t, uint32_t bits) {
  switch (t->format) {
  case CU_AD_FORMAT_UNSIGNED_INT8:
    return (uint8_t)bits;
  case CU_AD_FORMAT_SIGNED_INT8:
    return (uint32_t)(int8_t)bits;
  case CU_AD_FORMAT_UNSIGNED_INT16:
    return (uint16_t)bits;
  case CU_AD_FORMAT_SIGNED_INT16:
    return (uint32_t)(int16_t)bits;
  default:
    return bits;
  }
}

/* The border as a texel of the texture's format, as an H200 has it; for integers, its bits are taken. */
static uint32_t border(const struct vgx_sim_texture *t, uint32_t c, bool raw) {
  float color = t->border[c];
  if (t->as_integer)
    return narrowed(t, vgx_sim_as_bits(color));
  switch (t->format) {
  case CU_AD_FORMAT_UNSIGNED_INT8:
    return steps(color, 0, UINT8_MAX, raw);
  case CU_AD_FORMAT_SIGNED_INT8:
    return steps(color, -1, INT8_MAX, raw);
  case CU_AD_FORMAT_UNSIGNED_INT16:
    return steps(color, 0, UINT16_MAX, raw);
  case CU_AD_FORMAT_SIGNED_INT16:
    return steps(color, -1, INT16_MAX, raw);
  case CU_AD_FORMAT_HALF:
    return vgx_sim_as_bits(to_half(color));
  default:
    return vgx_sim_as_bits(color);
  }
}

struct vgx_sim_texel vgx_sim_texel_read(const struct vgx_sim_texture *t, const struct vgx_sim_level *level, int64_t x,
                                        int64_t y, int64_t z, bool raw) {
  struct vgx_sim_texel texel = {{0}};
  if (x < 0 || y < 0 || z < 0) {
    for (uint32_t c = 0; c < t->channels; c++)
      texel.bits[c] = border(t, c, raw);
    return texel;
  }
  const uint8_t *at = (const uint8_t *)(level->base + (uint64_t)z * level->slice + (uint64_t)y * level->pitch) +
                      (uint64_t)x * t->element_nbytes;
  decode(t, at, raw || t->as_integer, texel.bits);
  return texel;
}
