/* The rules are those of an H200 that was asked (tests/gpu/textures.py): weights are whole 256ths; 8- and 16-bit
 * integers are summed as 16-bit ones; floats are aligned to the largest of a plane, summed exactly and rounded once;
 * what was in sRGB is 8 bits of the largest's scale, and the sum a half. */
#include "vgx_sim_filter.h"

#include <math.h>

enum { WHOLE = VGX_SIM_WHOLE, HALF = WHOLE / 2 };

/* The second neighbour's share of a weight, `part` 256ths of it. */
static int second_of(int weight, int part, int remainder) { return (weight * part + remainder) / WHOLE; }

/* Weights of the corners: divided by z, then by x, then by y (tests/gpu/filtering.cu prints them). */
static void divide(const int *part, int axes, int whole, int *weight) {
  int far = axes == 3 ? second_of(whole, part[2], HALF - 1) : 0;
  for (int z = 0; z < (axes == 3 ? 2 : 1); z++, weight += 4) {
    int plane = z ? far : whole - far, right = second_of(plane, part[0], HALF), left = plane - right;
    weight[2] = axes == 1 ? 0 : second_of(left, part[1], HALF - 1);
    weight[3] = axes == 1 ? 0 : second_of(right, part[1], HALF);
    weight[0] = left - weight[2];
    weight[1] = right - weight[3];
  }
}

void vgx_sim_filter_add(struct vgx_sim_corners *corners, const struct vgx_sim_texture *t,
                        const struct vgx_sim_level *level, const int64_t *place, int axes, int64_t layer, int whole,
                        uint8_t pass) {
  const uint32_t extent[3] = {level->width, level->height, level->depth};
  int part[3] = {0}, weight[8];
  int64_t at[3][2] = {{0}, {0}, {layer, layer}};
  for (int a = 0; a < axes; a++) {
    part[a] = place[a] & (WHOLE - 1);
    at[a][0] = vgx_sim_texel_index(t, a, place[a] >> 8, extent[a]);
    at[a][1] = part[a] ? vgx_sim_texel_index(t, a, (place[a] >> 8) + 1, extent[a]) : 0;
  }
  divide(part, axes, whole, weight);
  for (int i = 0; i < 1 << axes; i++) {
    if (!weight[i])
      continue;
    uint32_t k = corners->count++;
    corners->weight[k] = weight[i];
    corners->pass[k] = (uint8_t)(pass + (i >> 2));
    corners->texel[k] = vgx_sim_texel_read(t, level, at[0][i & 1], at[1][i >> 1 & 1], at[2][i >> 2], corners->raw);
  }
}

bool vgx_sim_filter_is_float(const struct vgx_sim_texture *t) {
  return t->format == CU_AD_FORMAT_HALF || t->format == CU_AD_FORMAT_FLOAT;
}

static float sum_of_integers(const struct vgx_sim_corners *corners, const struct vgx_sim_texture *t, uint32_t c) {
  int64_t sum = 0;
  for (uint32_t i = 0; i < corners->count; i++)
    sum += (int64_t)corners->weight[i] * (int32_t)corners->texel[i].bits[c];
  switch (t->format) {
  case CU_AD_FORMAT_UNSIGNED_INT8:
    return (float)((sum * 257 + HALF) >> 8) / UINT16_MAX;
  case CU_AD_FORMAT_UNSIGNED_INT16:
    return (float)((sum + HALF) >> 8) / UINT16_MAX;
  case CU_AD_FORMAT_SIGNED_INT8: /* times 32767 / 127, as an H200 multiplies */
    sum += (sum + 64 + 16 * (sum >> 12)) >> 7;
    break;
  default:
    sum = (sum + HALF) >> 8;
  }
  return (float)(sum < -INT16_MAX ? -INT16_MAX : sum) / INT16_MAX;
}

enum { FRACTION = 23, INFINITE = 255, GUARD = 4 };

static uint32_t exponent_of(uint32_t bits) { return bits >> FRACTION & INFINITE; }

static double power(int exponent) {
  uint64_t bits = (uint64_t)(exponent + 1023) << 52;
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

struct precision {
  int nbits, least;      /* of a number's fraction and the 1 before it; the exponent of the last bit of the smallest */
  bool subnormal;        /* whether subnormal numbers are more than 0 */
  uint32_t not_a_number; /* the bits of every NaN */
};
static const struct precision half = {11, -24, true, 0x7fffe000}, single = {24, -149, false, 0x7fffffff};

/* The corners from `i` to `end`, aligned to the greatest exponent, `most`: what lies more than GUARD bits below its
 * last place is cut off. */
static double sum_of_pass(const struct vgx_sim_corners *corners, uint32_t c, uint32_t i, uint32_t end, uint32_t most,
                          const struct precision *p) {
  int64_t sum = 0;
  int cut = FRACTION + 1 - p->nbits - GUARD; /* bits at the end of a 24-bit number that do not take part */
  for (; i < end; i++) {
    uint32_t bits = corners->texel[i].bits[c], exponent = exponent_of(bits);
    int64_t value = bits & ((1u << FRACTION) - 1);
    if (!exponent) /* 0; a subnormal half is a usual float */
      continue;
    uint32_t shift = most - exponent < 32 ? most - exponent : 32;
    value = (value | 1 << FRACTION) << GUARD >> ((uint32_t)(cut + GUARD) + shift);
    sum += (bits >> 31 ? -value : value) * corners->weight[i];
  }
  return (double)sum * power((int)most - 127 - FRACTION + cut - 8);
}

/* Round to nearest; of two equally near ones to the one of the greater magnitude. */
static float rounded(double sum, const struct precision *p) {
  uint64_t bits;
  if (fabs(sum) < power(p->least + p->nbits - 1)) {
    double whole = round(sum * power(-p->least)) * power(p->least);
    return (float)(p->subnormal || fabs(whole) >= power(p->least + p->nbits - 1) ? whole : copysign(0, sum));
  }
  memcpy(&bits, &sum, sizeof bits);
  bits += 1ull << (52 - p->nbits);
  bits &= ~((2ull << (52 - p->nbits)) - 1);
  memcpy(&sum, &bits, sizeof bits);
  return (float)sum;
}

/* With infinities and NaNs among them: one infinity, or the NaN. */
static float sum_of_specials(const struct vgx_sim_corners *corners, uint32_t c, const struct precision *p) {
  float sum = 0;
  for (uint32_t i = 0; i < corners->count; i++)
    if (exponent_of(corners->texel[i].bits[c]) == INFINITE)
      sum += vgx_sim_as_float(corners->texel[i].bits[c]);
  return sum == sum ? sum : vgx_sim_as_float(p->not_a_number);
}

static float sum_of_floats(const struct vgx_sim_corners *corners, uint32_t c, const struct precision *p) {
  double sum = 0;
  uint32_t signs = 1u << 31;
  for (uint32_t begin = 0, end; begin < corners->count; begin = end) {
    uint32_t most = 1;
    for (end = begin; end < corners->count && corners->pass[end] == corners->pass[begin]; end++) {
      uint32_t exponent = exponent_of(corners->texel[end].bits[c]);
      most = exponent > most ? exponent : most;
      signs &= corners->texel[end].bits[c];
    }
    if (most == INFINITE)
      return sum_of_specials(corners, c, p);
    sum += sum_of_pass(corners, c, begin, end, most, p);
  }
  return sum == 0 ? vgx_sim_as_float(signs) : rounded(sum, p);
}

static float sum_of_lights(const struct vgx_sim_corners *corners, uint32_t c) {
  double sum = 0;
  for (uint32_t begin = 0, end; begin < corners->count; begin = end) {
    float scale = 0;
    int64_t units = 0;
    for (end = begin; end < corners->count && corners->pass[end] == corners->pass[begin]; end++)
      scale = fmaxf(scale, vgx_sim_texel_scale(vgx_sim_as_float(corners->texel[end].bits[c])));
    for (uint32_t i = begin; i < end; i++)
      units += corners->weight[i] * (int64_t)(vgx_sim_as_float(corners->texel[i].bits[c]) / scale * 128);
    sum += (double)units * scale * 0x1p-15;
  }
  return sum == 0 ? 0 : rounded(sum, &half);
}

/* Of integers that are read as such: 32-bit ones are rounded down, others to the nearest. */
static uint32_t sum_as_integer(const struct vgx_sim_corners *corners, const struct vgx_sim_texture *t, uint32_t c) {
  bool is_signed = t->format >= CU_AD_FORMAT_SIGNED_INT8;
  bool wide = t->format == CU_AD_FORMAT_UNSIGNED_INT32 || t->format == CU_AD_FORMAT_SIGNED_INT32;
  int64_t sum = wide ? 0 : HALF;
  for (uint32_t i = 0; i < corners->count; i++) {
    uint32_t bits = corners->texel[i].bits[c];
    sum += corners->weight[i] * (is_signed ? (int64_t)(int32_t)bits : (int64_t)bits);
  }
  return (uint32_t)(sum >> 8);
}

struct vgx_sim_texel vgx_sim_filter_sum(const struct vgx_sim_corners *corners, const struct vgx_sim_texture *t) {
  struct vgx_sim_texel sum = {{0}};
  for (uint32_t c = 0; c < t->channels; c++)
    if (t->as_integer)
      sum.bits[c] = sum_as_integer(corners, t, c);
    else if (t->format == CU_AD_FORMAT_FLOAT)
      sum.bits[c] = vgx_sim_as_bits(sum_of_floats(corners, c, &single));
    else if (t->format == CU_AD_FORMAT_HALF)
      sum.bits[c] = vgx_sim_as_bits(sum_of_floats(corners, c, &half));
    else if (vgx_sim_texel_is_srgb(t, c))
      sum.bits[c] = vgx_sim_as_bits(sum_of_lights(corners, c));
    else
      sum.bits[c] = vgx_sim_as_bits(sum_of_integers(corners, t, c));
  return sum;
}
