/* What tex, tld4, suld and sust do, for one warp. The compiler hands over rows of one 64-bit word a lane: the handle,
 * coordinates, then what the operation needs besides; results come back in the same form.
 *
 * Weights have 8 fractional bits, as CUDA's documentation says of the hardware. Runs on a kernel's
 * thread, guarded: memory that was freed under a texture is the kernel's fault. */
#include "vgx_sim_sample.h"

#include <math.h>
#include <string.h>

#include "vgx_sim_abi.h"
#include "vgx_sim_array.h"
#include "vgx_sim_tensor.h"
#include "vgx_sim_texture.h"

enum geometry { GEOMETRY_1D = 1, GEOMETRY_2D, GEOMETRY_3D, GEOMETRY_A1D, GEOMETRY_A2D, GEOMETRY_CUBE, GEOMETRY_ACUBE };
enum operation { PLAIN, LEVEL, GRADIENT, GATHER, LOAD, STORE, TENSOR };
enum beyond { BEYOND_TRAP, BEYOND_CLAMP, BEYOND_ZERO }; /* surfaces */
enum { WRAP, CLAMP, MIRROR, BORDER };                   /* CUaddress_mode */
enum { ROW_COORDINATES = 1, ROW_EXTRA = 5 };

/* The form, as codegen/emit_texture.py packs it. */
struct form {
  enum geometry geometry;
  enum operation operation;
  bool integers; /* coordinates */
  uint32_t component;
  enum beyond beyond;
  uint32_t count, nbytes; /* of a surface's access */
};

static struct form unpack(uint64_t bits) {
  return (struct form){.geometry = bits & 15,
                       .operation = bits >> 4 & 7,
                       .integers = bits >> 8 & 1,
                       .component = bits >> 9 & 3,
                       .beyond = bits >> 12 & 3,
                       .count = bits >> 16 & 15,
                       .nbytes = bits >> 20 & 15};
}

struct value {
  uint32_t bits[4]; /* floats, or integers where the texture is read as such */
};

static float as_float(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static uint32_t as_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static float half_to_float(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, mantissa = half & 0x3ff;
  if (exponent == 31)
    return as_float(sign | 0x7f800000 | mantissa << 13);
  if (exponent)
    return as_float(sign | (exponent + 112) << 23 | mantissa << 13);
  return as_float(sign | as_bits((float)mantissa * 0x1p-24f));
}

static uint32_t channel(const struct vgx_sim_texture *t, const uint8_t *at) {
  bool raw = t->as_integer;
  uint16_t word;
  uint32_t bits;
  switch (t->format) {
  case CU_AD_FORMAT_UNSIGNED_INT8:
    return raw ? *at : as_bits((float)*at / 255);
  case CU_AD_FORMAT_SIGNED_INT8:
    return raw ? (uint32_t)(int8_t)*at : as_bits(fmaxf((float)(int8_t)*at / 127, -1));
  case CU_AD_FORMAT_UNSIGNED_INT16:
    memcpy(&word, at, 2);
    return raw ? word : as_bits((float)word / 65535);
  case CU_AD_FORMAT_SIGNED_INT16:
    memcpy(&word, at, 2);
    return raw ? (uint32_t)(int16_t)word : as_bits(fmaxf((float)(int16_t)word / 32767, -1));
  case CU_AD_FORMAT_HALF:
    memcpy(&word, at, 2);
    return as_bits(half_to_float(word));
  default:
    memcpy(&bits, at, 4);
    return bits;
  }
}

/* One texel; a coordinate below 0 is the border. */
static struct value texel(const struct vgx_sim_texture *t, const struct vgx_sim_level *l, int64_t x, int64_t y,
                          int64_t z) {
  struct value v = {{0, 0, 0, t->as_integer ? 1 : as_bits(1)}};
  if (x < 0 || y < 0 || z < 0) {
    for (int c = 0; c < 4; c++)
      v.bits[c] = t->as_integer ? (uint32_t)(int64_t)t->border[c] : as_bits(t->border[c]);
    return v;
  }
  const uint8_t *at =
      (const uint8_t *)(l->base + (uint64_t)z * l->slice + (uint64_t)y * l->pitch) + (uint64_t)x * t->element_nbytes;
  uint32_t nbytes = t->element_nbytes / t->channels;
  for (uint32_t c = 0; c < t->channels; c++)
    v.bits[c] = channel(t, at + c * nbytes);
  return v;
}

static int mode_of(const struct vgx_sim_texture *t, int axis) {
  int mode = t->cubemap ? CLAMP : t->address_mode[axis];
  return !t->normalized && !t->cubemap && mode != BORDER ? CLAMP : mode; /* the others need normalised coordinates */
}

/* The index after applying an address mode; -1: the border. */
static int64_t address(const struct vgx_sim_texture *t, int axis, int64_t i, int64_t n) {
  int mode = mode_of(t, axis);
  if (i >= 0 && i < n)
    return i;
  if (mode == BORDER)
    return -1;
  if (mode == WRAP)
    return (i % n + n) % n;
  if (mode == MIRROR) {
    int64_t m = (i % (2 * n) + 2 * n) % (2 * n);
    return m < n ? m : 2 * n - 1 - m;
  }
  return i < 0 ? 0 : n - 1;
}

/* floor(x), clamped to 32 bits: a coordinate far outside of the texture stays outside. */
static int64_t whole(float x) {
  if (!(x > -0x1p31f)) /* NaN, too */
    return x != x ? 0 : -(1ll << 31);
  return x < 0x1p31f ? (int64_t)floorf(x) : 1ll << 31;
}

struct point {
  float at[3]; /* in texels */
  int64_t index[3];
  int part[3]; /* of the way to the next texel, in 256ths */
};

static void mix(struct value *v, const struct value *other, float weight) {
  for (int c = 0; c < 4; c++)
    v->bits[c] = as_bits((1 - weight) * as_float(v->bits[c]) + weight * as_float(other->bits[c]));
}

/* Weights of the corners in 256ths, as an H200 divides them (tests/gpu/filtering.cu, all of 1,500 places): by z, then
 * by x, then by y, and what falls between two goes to the corner that is further on in both. */
static void divide(const int *part, int axes, int *weight) {
  enum { WHOLE = 256, HALF = 128 };
  for (int z = 0; z < (axes == 3 ? 2 : 1); z++, weight += 4) {
    int plane = axes < 3 ? WHOLE : z ? part[2] : WHOLE - part[2];
    int right = (plane * part[0] + HALF) / WHOLE, left = plane - right;
    weight[2] = axes == 1 ? 0 : (left * part[1] + HALF - 1) / WHOLE;
    weight[3] = axes == 1 ? 0 : (right * part[1] + HALF) / WHOLE;
    weight[0] = left - weight[2];
    weight[1] = right - weight[3];
  }
}

static struct value interpolate(const struct vgx_sim_texture *t, const struct vgx_sim_level *l, const struct point *p,
                                int axes, int64_t layer) {
  const uint32_t extent[3] = {l->width, l->height, l->depth};
  float sum[4] = {0};
  struct value v;
  int weight[8];
  divide(p->part, axes, weight);
  for (int i = 0; i < 1 << axes; i++) {
    int64_t at[3] = {0, 0, layer};
    if (!weight[i])
      continue;
    for (int a = 0; a < axes && a < 3; a++)
      at[a] = address(t, a, p->index[a] + (i >> a & 1), extent[a]);
    v = texel(t, l, at[0], at[1], at[2]);
    for (int c = 0; c < 4; c++)
      sum[c] += (float)weight[i] / 256 * as_float(v.bits[c]);
  }
  for (int c = 0; c < 4; c++)
    v.bits[c] = as_bits(sum[c]);
  return v;
}

/* Sample one level. `x`: coordinates as the kernel gave them, `axes` of them. */
static struct value sample_level(const struct vgx_sim_texture *t, const struct vgx_sim_level *l, const float *x,
                                 int axes, int64_t layer) {
  const uint32_t extent[3] = {l->width, l->height, l->depth};
  bool linear = t->filter == 1;
  struct point p;
  const float on_edge[3] = {x[0], 0, 0};
  /* One dimension is the edge of two rows: with a border, half of each value is the border's (as on an H200). */
  if (axes == 1 && linear && !t->layered) {
    x = on_edge;
    axes = 2;
  }
  for (int a = 0; a < axes; a++) {
    p.at[a] = (t->normalized || t->cubemap ? x[a] * (float)extent[a] : x[a]) - (linear ? 0.5f : 0);
    if (linear && mode_of(t, a) == CLAMP) /* before it is divided, as an H200 does: no weight falls beyond the edge */
      p.at[a] = fminf(fmaxf(p.at[a], 0), (float)(extent[a] - 1));
    p.index[a] = whole(p.at[a]);
    float part = p.at[a] - floorf(p.at[a]);
    p.part[a] = part == part ? (int)(part * 256 + 0.5f) : 0;
  }
  if (linear)
    return interpolate(t, l, &p, axes, layer);
  int64_t at[3] = {0, 0, layer};
  for (int a = 0; a < axes; a++)
    at[a] = address(t, a, p.index[a], extent[a]);
  return texel(t, l, at[0], at[1], at[2]);
}

static struct value sample(const struct vgx_sim_texture *t, const float *x, int axes, int64_t layer, float detail) {
  detail = fminf(fmaxf(detail + t->bias, t->least), t->most);
  detail = fminf(fmaxf(detail, 0), (float)(t->level_count - 1));
  if (t->level_count == 1 || detail != detail)
    detail = 0;
  if (t->mipmap_filter == 0)
    return sample_level(t, &t->levels[(uint32_t)(detail + 0.5f)], x, axes, layer);
  uint32_t level = (uint32_t)detail;
  float weight = roundf((detail - (float)level) * 256) / 256;
  struct value v = sample_level(t, &t->levels[level], x, axes, layer);
  if (weight > 0) {
    struct value next = sample_level(t, &t->levels[level + 1], x, axes, layer);
    mix(&v, &next, weight);
  }
  return v;
}

/* The face of a cube that a direction meets, and where on it. */
static int64_t face_of(const float d[3], float x[2]) {
  float ax = fabsf(d[0]), ay = fabsf(d[1]), az = fabsf(d[2]), m;
  int64_t face;
  if (ax >= ay && ax >= az) {
    face = d[0] < 0;
    m = ax;
    x[0] = d[0] < 0 ? d[2] : -d[2];
    x[1] = -d[1];
  } else if (ay >= az) {
    face = 2 + (d[1] < 0);
    m = ay;
    x[0] = d[0];
    x[1] = d[1] < 0 ? -d[2] : d[2];
  } else {
    face = 4 + (d[2] < 0);
    m = az;
    x[0] = d[2] < 0 ? -d[0] : d[0];
    x[1] = -d[1];
  }
  for (int i = 0; i < 2; i++)
    x[i] = (x[i] / m + 1) / 2;
  return face;
}

static int64_t clamp_layer(int64_t layer, int64_t count) { return layer < 0 ? 0 : layer < count ? layer : count - 1; }

static bool is_layered(enum geometry g) { return g == GEOMETRY_A1D || g == GEOMETRY_A2D || g == GEOMETRY_ACUBE; }

static int axes_of(enum geometry g) {
  switch (g) {
  case GEOMETRY_1D:
  case GEOMETRY_A1D:
    return 1;
  case GEOMETRY_3D:
    return 3;
  default:
    return 2;
  }
}

/* Texels of integer coordinates, as tex1Dfetch takes them: elements beyond the memory are 0. */
static struct value fetch(const struct vgx_sim_texture *t, const int64_t i[3], int axes, int64_t layer) {
  const struct vgx_sim_level *l = &t->levels[0];
  const uint32_t extent[3] = {l->width, l->height, l->depth};
  int64_t at[3] = {0, 0, layer};
  for (int a = 0; a < axes; a++) {
    if (t->linear && (i[a] < 0 || i[a] >= extent[a]))
      return (struct value){{0}};
    at[a] = address(t, a, i[a], extent[a]);
  }
  return texel(t, l, at[0], at[1], at[2]);
}

static float detail_of(const struct vgx_sim_texture *t, const uint64_t *in, uint32_t lane, int axes) {
  const struct vgx_sim_level *l = &t->levels[0];
  const uint32_t extent[3] = {l->width, l->height, l->depth};
  float longest = 0;
  for (int d = 0; d < 2; d++) {
    float square = 0;
    for (int a = 0; a < axes; a++) {
      float step = as_float((uint32_t)in[(ROW_EXTRA + d * axes + a) * 32 + (int)lane]);
      step *= t->normalized ? (float)extent[a] : 1;
      square += step * step;
    }
    longest = fmaxf(longest, sqrtf(square));
  }
  return log2f(longest);
}

static void gather(const struct vgx_sim_texture *t, const float *x, int64_t layer, uint32_t component, uint64_t *out) {
  const struct vgx_sim_level *l = &t->levels[0];
  const uint32_t extent[2] = {l->width, l->height};
  static const int corner[4][2] = {{0, 1}, {1, 1}, {1, 0}, {0, 0}};
  int64_t index[2];
  for (int a = 0; a < 2; a++)
    index[a] = whole((t->normalized || t->cubemap ? x[a] * (float)extent[a] : x[a]) - 0.5f);
  for (int i = 0; i < 4; i++) {
    int64_t at[2];
    for (int a = 0; a < 2; a++)
      at[a] = address(t, a, index[a] + corner[i][a], extent[a]);
    out[i * 32] = texel(t, l, at[0], at[1], layer).bits[component];
  }
}

static const char *sample_lane(const struct vgx_sim_texture *t, const struct form *f, const uint64_t *in, uint32_t lane,
                               uint64_t *out) {
  bool cube = f->geometry == GEOMETRY_CUBE || f->geometry == GEOMETRY_ACUBE;
  int first = ROW_COORDINATES + is_layered(f->geometry), axes = axes_of(f->geometry);
  int64_t layer = is_layered(f->geometry) ? (int32_t)in[ROW_COORDINATES * 32 + lane] : 0;
  float x[3] = {0};
  if (is_layered(f->geometry) != t->layered || cube != t->cubemap)
    return "a texture of another kind than the instruction reads";
  int64_t layers = t->levels[0].depth;
  if (cube) {
    float direction[3];
    for (int a = 0; a < 3; a++)
      direction[a] = as_float((uint32_t)in[(first + a) * 32 + (int)lane]);
    int64_t face = face_of(direction, x);
    layer = 6 * clamp_layer(layer, layers / 6) + face;
  } else {
    layer = clamp_layer(layer, layers);
  }
  struct value v;
  if (f->integers) {
    int64_t index[3];
    for (int a = 0; a < axes; a++)
      index[a] = (int32_t)in[(first + a) * 32 + (int)lane];
    v = fetch(t, index, axes, layer);
  } else {
    if (t->linear)
      return "memory of one dimension is read by integer coordinates alone";
    for (int a = 0; a < axes && !cube; a++)
      x[a] = as_float((uint32_t)in[(first + a) * 32 + (int)lane]);
    if (f->operation == GATHER) {
      gather(t, x, layer, f->component, out + lane);
      return NULL;
    }
    float detail = f->operation == LEVEL      ? as_float((uint32_t)in[ROW_EXTRA * 32 + lane])
                   : f->operation == GRADIENT ? detail_of(t, in, lane, axes)
                                              : 0;
    v = sample(t, x, axes, layer, detail);
  }
  for (int c = 0; c < 4; c++)
    out[c * 32 + (int)lane] = v.bits[c];
  return NULL;
}

static int64_t clamped(int64_t at, int64_t most) { return at < 0 ? 0 : at < most ? at : most; }

static const char *access_lane(const struct vgx_sim_texture *t, const struct form *f, const uint64_t *in, uint32_t lane,
                               uint64_t *out) {
  const struct vgx_sim_level *l = &t->levels[0];
  int first = ROW_COORDINATES + is_layered(f->geometry), axes = axes_of(f->geometry);
  int64_t nbytes = (int64_t)f->count * f->nbytes, at[3] = {0}, most[3];
  for (int a = 0; a < axes; a++)
    at[a] = (int32_t)in[(first + a) * 32 + (int)lane];
  if (is_layered(f->geometry))
    at[2] = (int32_t)in[ROW_COORDINATES * 32 + lane];
  most[0] = (int64_t)l->width * t->element_nbytes - nbytes; /* x counts bytes */
  most[1] = (int64_t)l->height - 1;
  most[2] = (int64_t)l->depth - 1;
  bool inside = at[0] % f->nbytes == 0;
  for (int a = 0; a < 3; a++)
    inside &= at[a] >= 0 && at[a] <= most[a];
  if (!inside) {
    if (f->beyond == BEYOND_TRAP || at[0] % f->nbytes || most[0] < 0)
      return "an access of a surface beyond its edge";
    for (uint32_t c = 0; c < f->count && f->beyond == BEYOND_ZERO && f->operation == LOAD; c++)
      out[c * 32 + lane] = 0;
    if (f->beyond == BEYOND_ZERO)
      return NULL;
    for (int a = 0; a < 3; a++)
      at[a] = clamped(at[a], most[a]);
  }
  uint8_t *byte = (uint8_t *)(l->base + (uint64_t)at[2] * l->slice + (uint64_t)at[1] * l->pitch) + at[0];
  for (uint32_t c = 0; c < f->count; c++) {
    if (f->operation == STORE) {
      memcpy(byte + c * f->nbytes, &in[(ROW_EXTRA + c) * 32 + lane], f->nbytes);
    } else {
      uint64_t value = 0;
      memcpy(&value, byte + c * f->nbytes, f->nbytes);
      out[c * 32 + lane] = value;
    }
  }
  return NULL;
}

const char *vgx_sim_sample(CUcontext ctx, uint64_t bits, uint32_t mask, const uint64_t *in, uint64_t *out) {
  struct form f = unpack(bits);
  if (f.operation == TENSOR)
    return vgx_sim_tensor_copy(bits, mask, in, out);
  bool surface = f.operation == LOAD || f.operation == STORE;
  for (; mask; mask &= mask - 1) {
    uint32_t lane = (uint32_t)__builtin_ctz(mask);
    const struct vgx_sim_texture *t = vgx_sim_texture_of(in[lane], surface);
    if (!t || t->ctx != ctx) /* another context's may be freed while this kernel runs */
      return surface ? "not a surface object" : "not a texture object";
    const char *wrong = surface ? access_lane(t, &f, in, lane, out) : sample_lane(t, &f, in, lane, out);
    if (wrong)
      return wrong;
  }
  return NULL;
}
