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

/* What an H200 makes of sRGB's 256 values, in 2^-14. */
static const uint16_t linear_light[256] = {
    0,     5,     10,    15,    20,    25,    30,    35,    40,    45,    50,    55,    60,    66,    72,    78,
    85,    92,    99,    107,   115,   123,   131,   140,   150,   159,   169,   180,   190,   201,   213,   224,
    236,   250,   262,   276,   290,   304,   318,   332,   348,   364,   380,   396,   412,   430,   448,   466,
    484,   504,   524,   544,   564,   584,   604,   624,   648,   672,   692,   716,   740,   764,   788,   816,
    840,   864,   896,   920,   944,   976,   1000,  1032,  1064,  1088,  1120,  1152,  1184,  1216,  1248,  1280,
    1312,  1352,  1384,  1416,  1456,  1488,  1528,  1560,  1600,  1640,  1672,  1712,  1752,  1792,  1832,  1872,
    1920,  1952,  2000,  2048,  2080,  2128,  2176,  2224,  2272,  2320,  2368,  2416,  2464,  2512,  2560,  2608,
    2656,  2704,  2752,  2816,  2864,  2912,  2976,  3024,  3072,  3136,  3184,  3248,  3296,  3360,  3424,  3472,
    3536,  3600,  3664,  3712,  3776,  3840,  3904,  3968,  4032,  4096,  4160,  4224,  4288,  4352,  4416,  4512,
    4576,  4640,  4704,  4768,  4864,  4928,  4992,  5056,  5152,  5216,  5280,  5376,  5440,  5536,  5600,  5696,
    5760,  5824,  5920,  6016,  6080,  6176,  6240,  6336,  6400,  6496,  6592,  6688,  6752,  6848,  6944,  7008,
    7104,  7200,  7296,  7392,  7488,  7584,  7680,  7744,  7872,  7936,  8064,  8128,  8256,  8320,  8448,  8512,
    8640,  8768,  8832,  8960,  9024,  9152,  9280,  9344,  9472,  9600,  9664,  9792,  9920,  9984,  10112, 10240,
    10304, 10432, 10560, 10688, 10816, 10880, 11008, 11136, 11264, 11392, 11456, 11584, 11712, 11840, 11968, 12096,
    12224, 12352, 12480, 12608, 12736, 12864, 12992, 13120, 13248, 13376, 13504, 13632, 13760, 13888, 14016, 14144,
    14272, 14400, 14528, 14656, 14848, 14976, 15104, 15232, 15360, 15488, 15616, 15744, 16000, 16128, 16256, 16384};

bool vgx_sim_texel_is_srgb(const struct vgx_sim_texture *t, uint32_t c) {
  return t->srgb && (t->channels == 4 ? c < 3 : c == 0);
}

float vgx_sim_texel_scale(float light) {
  uint32_t last = 7;
  while ((float)linear_light[last] < light * 0x1p14f && last < 255)
    last += 8;
  return vgx_sim_as_float(vgx_sim_as_bits((float)linear_light[last] * 0x1p-14f) & 0x7f800000);
}

static uint32_t light(uint8_t value) { return vgx_sim_as_bits((float)linear_light[value] * 0x1p-14f); }

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
      bits[c] = vgx_sim_texel_is_srgb(t, c) ? light(at[c]) : raw ? at[c] : fraction(at[c], UINT8_MAX);
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

/* The border as an integer of `nbits`, with a fraction of 4 bits on the way, as an H200's driver converts it. */
static uint32_t steps(float value, bool is_signed, int nbits, bool raw) {
  float size = fabsf(value) < 1 ? fabsf(value) : 1;
  if (value != value || (value < 0 && !is_signed))
    size = 0;
  int count = ((int)(size * (float)(16 << nbits)) - (int)(size * 16) + 7) >> 4;
  count = value < 0 ? -count : count;
  return raw ? (uint32_t)count : fraction(count, (1 << nbits) - 1);
}

/* The border of a texture in sRGB. */
static uint32_t border_light(float value) {
  float linear = fminf(fmaxf(value, 0), 1);
  float encoded = linear <= 0.0031308f ? 12.92f * linear : 1.055f * powf(linear, 1 / 2.4f) - 0.055f;
  return light((uint8_t)(255 * encoded + 0.5f));
}

/* A number of half precision, cut off; an infinity or a NaN keeps its upper bits. */
static uint32_t cut_to_half(float value) {
  const float most = 65504, step = 0x1p-24f;
  uint32_t bits = vgx_sim_as_bits(value);
  if (!isfinite(value))
    return bits & 0xffffe000;
  if (fabsf(value) < 0x1p-14f)
    return vgx_sim_as_bits(truncf(value / step) * step);
  return vgx_sim_as_bits(copysignf(fminf(fabsf(vgx_sim_as_float(bits & 0xffffe000)), most), value));
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
    return vgx_sim_texel_is_srgb(t, c) ? border_light(color) : steps(color, false, 8, raw);
  case CU_AD_FORMAT_SIGNED_INT8:
    return steps(color, true, 7, raw);
  case CU_AD_FORMAT_UNSIGNED_INT16:
    return steps(color, false, 16, raw);
  case CU_AD_FORMAT_SIGNED_INT16:
    return steps(color, true, 15, raw);
  case CU_AD_FORMAT_HALF:
    return cut_to_half(color);
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
