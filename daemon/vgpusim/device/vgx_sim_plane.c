/* vgx_sim_sample.c has the rules; here each axis is described once for the warp, and sums that double precision holds
 * exactly are made in it. */
#include "vgx_sim_plane.h"

#include <math.h>

enum { LANES = 32, WHOLE = 256, HALF = WHOLE / 2, COORDINATE_NBITS = 21, CUT = COORDINATE_NBITS - 8 };

struct axis {
  const struct vgx_sim_texture *texture;
  int number, mode;
  int32_t extent;
  bool scaled, linear;
};

struct spot {
  int32_t first, second, part; /* the two texels, and the distance from the first in 256ths */
};

static int32_t down(double x) {
  int32_t whole = (int32_t)x;
  return whole - (whole > x);
}

static int32_t folded(const struct axis *axis, int32_t i) {
  if ((uint32_t)i < (uint32_t)axis->extent)
    return i;
  if (axis->mode == VGX_SIM_CLAMP)
    return i < 0 ? 0 : axis->extent - 1;
  return (int32_t)vgx_sim_texel_index(axis->texture, axis->number, i, axis->extent);
}

/* False: the coordinate is far away, not a number, or at the border. */
static bool locate(const struct axis *axis, uint64_t word, struct spot *spot) {
  float x = vgx_sim_as_float((uint32_t)word);
  int32_t place;
  if (!(fabsf(x) >= 0x1p-126f))
    x = x == x ? 0 : INFINITY;
  if (axis->scaled) {
    if (!(fabsf(x) < 256))
      return false;
    int64_t at = (int64_t)down((double)x * (1 << COORDINATE_NBITS)) * axis->extent;
    place = (int32_t)(axis->linear ? (at - (1 << (COORDINATE_NBITS - 1)) + (1 << (CUT - 1))) >> CUT
                                   : at >> COORDINATE_NBITS);
  } else {
    if (!(fabsf(x) < 0x1p22f))
      return false;
    place = axis->linear ? down((double)x * WHOLE - (HALF - 0.5)) : down((double)x);
  }
  if (!axis->linear) {
    *spot = (struct spot){folded(axis, place), 0, 0};
    return spot->first >= 0;
  }
  if (axis->mode == VGX_SIM_CLAMP) {
    int32_t last = (axis->extent - 1) * WHOLE;
    place = place < 0 ? 0 : place < last ? place : last;
  }
  *spot = (struct spot){.first = folded(axis, place >> 8), .part = place & (WHOLE - 1)};
  spot->second = spot->part ? folded(axis, (place >> 8) + 1) : spot->first;
  return spot->first >= 0 && spot->second >= 0;
}

enum { FRACTION = 23, GUARD = 4 };

/* Neither subnormal, infinite nor a NaN. */
static bool is_usual(uint32_t bits) {
  uint32_t exponent = bits >> FRACTION & 255;
  return exponent != 255 && (exponent || !(bits << 1));
}

/* A weighted sum of four floats; false if aligning them would cut bits off, or one is infinite or not a number. */
static bool sum_of_floats(const uint32_t *bits, const int32_t *weight, float *result) {
  uint32_t least = 254, most = 1;
  double sum = 0;
  uint64_t word;
  for (int i = 0; i < 4; i++) {
    uint32_t exponent = bits[i] >> FRACTION & 255;
    if (!weight[i] || !(bits[i] << 1))
      continue;
    least = exponent < least ? exponent : least;
    most = exponent > most ? exponent : most;
    sum += (double)vgx_sim_as_float(bits[i]) * weight[i];
  }
  if (!least || most == 255 || (most > least && most - least > GUARD) || !(fabs(sum) >= 0x1p-100))
    return false;
  sum /= WHOLE;
  memcpy(&word, &sum, sizeof word);
  word = (word + (1ull << 28)) & ~((1ull << 29) - 1); /* 24 bits; half of a step is rounded up in magnitude */
  memcpy(&sum, &word, sizeof word);
  *result = (float)sum;
  return true;
}

static float sum_of_integers(const uint32_t *value, const int32_t *weight, int scale, int most) {
  int sum = HALF;
  for (int i = 0; i < 4; i++)
    sum += (int)value[i] * scale * weight[i];
  return (float)(sum >> 8) / (float)most;
}

static struct vgx_sim_texel texel_at(const struct vgx_sim_texture *t, int32_t x, int32_t y, bool raw) {
  const struct vgx_sim_level *l = &t->levels[0];
  if (t->format != CU_AD_FORMAT_FLOAT || t->channels != 1)
    return vgx_sim_texel_read(t, l, x, y, 0, raw);
  struct vgx_sim_texel texel = {{0}};
  memcpy(texel.bits, (const uint8_t *)(l->base + (uint64_t)y * l->pitch) + 4 * (uint64_t)x, 4);
  return texel;
}

static bool interpolate(const struct vgx_sim_texture *t, const struct spot *x, const struct spot *y, uint64_t *out) {
  int32_t right = x->part, left = WHOLE - right, weight[4];
  weight[2] = (left * y->part + HALF - 1) / WHOLE; /* as vgx_sim_filter.c divides them */
  weight[3] = (right * y->part + HALF) / WHOLE;
  weight[0] = left - weight[2];
  weight[1] = right - weight[3];
  struct vgx_sim_texel texel[4];
  for (int i = 0; i < 4; i++) /* corners without a weight are read again in the place of their neighbours */
    texel[i] = texel_at(t, i & 1 ? x->second : x->first, i & 2 ? y->second : y->first, true);
  for (uint32_t c = 0; c < t->channels; c++) {
    uint32_t bits[4] = {texel[0].bits[c], texel[1].bits[c], texel[2].bits[c], texel[3].bits[c]};
    float sum;
    if (t->format == CU_AD_FORMAT_FLOAT) {
      if (!sum_of_floats(bits, weight, &sum))
        return false;
    } else {
      sum = sum_of_integers(bits, weight, t->format == CU_AD_FORMAT_UNSIGNED_INT8 ? 257 : 1, UINT16_MAX);
    }
    out[c * LANES] = vgx_sim_as_bits(sum);
  }
  return true;
}

uint32_t vgx_sim_plane_sample(const struct vgx_sim_texture *t, uint32_t mask, const uint64_t *x, const uint64_t *y,
                              uint64_t *out) {
  const struct vgx_sim_level *l = &t->levels[0];
  bool linear = t->filter == 1;
  bool simple = t->format == CU_AD_FORMAT_FLOAT ||
                (!t->as_integer && !t->srgb &&
                 (t->format == CU_AD_FORMAT_UNSIGNED_INT8 || t->format == CU_AD_FORMAT_UNSIGNED_INT16));
  if (t->level_count != 1 || t->layered || t->cubemap || t->linear || (linear && !simple) || l->width > 1 << 14 ||
      l->height > 1 << 14)
    return mask;
  struct axis across = {t, 0, vgx_sim_texel_mode(t, 0), (int32_t)l->width, t->normalized, linear};
  struct axis along = {t, 1, vgx_sim_texel_mode(t, 1), (int32_t)l->height, t->normalized, linear};
  uint32_t rest = 0;
  for (; mask; mask &= mask - 1) {
    uint32_t lane = (uint32_t)__builtin_ctz(mask);
    struct spot right, down;
    bool done = locate(&across, x[lane], &right) && locate(&along, y ? y[lane] : 0, &down);
    if (done && linear && (right.part || down.part || t->channels > 1)) {
      done = interpolate(t, &right, &down, out + lane);
    } else if (done) {
      struct vgx_sim_texel texel = texel_at(t, right.first, down.first, false);
      done = !linear || t->format != CU_AD_FORMAT_FLOAT || is_usual(texel.bits[0]);
      for (uint32_t c = 0; c < t->channels && done; c++)
        out[c * LANES + lane] = texel.bits[c];
    }
    for (uint32_t c = t->channels; c < 4 && done; c++)
      out[c * LANES + lane] = 0;
    rest |= done ? 0 : 1u << lane;
  }
  return rest;
}
