/* What tex, tld4, suld and sust do, for one warp. The compiler hands over rows of one 64-bit word a lane: the handle,
 * coordinates, then what the operation needs besides; results come back in the same form.
 *
 * Runs on a kernel's thread, guarded: memory that was freed under a texture is the kernel's fault. */
#include "vgx_sim_sample.h"

#include <math.h>

#include "vgx_sim_abi.h"
#include "vgx_sim_detail.h"
#include "vgx_sim_filter.h"
#include "vgx_sim_plane.h"
#include "vgx_sim_tensor.h"
#include "vgx_sim_texture.h"

enum geometry { GEOMETRY_1D = 1, GEOMETRY_2D, GEOMETRY_3D, GEOMETRY_A1D, GEOMETRY_A2D, GEOMETRY_CUBE, GEOMETRY_ACUBE };
enum operation { PLAIN, LEVEL, GRADIENT, GATHER, LOAD, STORE, TENSOR };
enum beyond { BEYOND_TRAP, BEYOND_CLAMP, BEYOND_ZERO }; /* surfaces */
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

enum { PLACE_NBITS = 8, COORDINATE_NBITS = 22, LEVEL_NBITS = 8 };

/* x * scale, rounded down; what is far beyond every texture stays there. NaN and subnormal numbers count as 0. */
static int64_t fixed(double x, double scale) {
  x = fabs(x) >= 0x1p-126 ? x : 0;
  x = x > -0x1p24 ? x : -0x1p24;
  x = (x < 0x1p24 ? x : 0x1p24) * scale;
  int64_t whole = (int64_t)x;
  return whole - ((double)whole > x);
}

/* Where a coordinate is on an axis, in 2^-22 texels. A card cuts normalised ones to 21 bits before the product; to 22,
 * where it filters 32,768 texels (with 64 and fewer it does not, between them it was not asked). */
static int64_t position(const struct vgx_sim_texture *t, float x, uint32_t extent, bool linear) {
  enum { LARGE = 1 << 14 };
  const int64_t most = 1ll << 62; /* beyond every texture, and far enough from an overflow for place() */
  bool normalized = t->normalized || t->cubemap, fine = linear && extent > LARGE;
  int nbits = !normalized || fine ? COORDINATE_NBITS : COORDINATE_NBITS - 1;
  int64_t factor = normalized ? (int64_t)extent << (COORDINATE_NBITS - nbits) : 1, at;
  bool beyond = __builtin_mul_overflow(fixed((double)x, 1 << nbits), factor, &at) || at < -most || at > most;
  return !beyond ? at : x < 0 ? -most : most;
}

/* The distance from the first texel's middle in 256ths of a texel, rounded to nearest. */
static int64_t place(const struct vgx_sim_texture *t, float x, uint32_t extent) {
  enum { CUT = COORDINATE_NBITS - PLACE_NBITS };
  return (position(t, x, extent, true) - (1 << (COORDINATE_NBITS - 1)) + (1 << (CUT - 1))) >> CUT;
}

/* Add the texels about coordinates, as the kernel gave them, to those that are summed. */
static void sample_level(struct vgx_sim_corners *corners, const struct vgx_sim_texture *t,
                         const struct vgx_sim_level *l, const float *x, int axes, int64_t layer, int weight,
                         uint8_t pass) {
  const uint32_t extent[3] = {l->width, l->height, l->depth};
  const float on_edge[3] = {x[0], 0, 0};
  int64_t at[3] = {0, 0, layer};
  if (t->filter == 1) {
    /* One dimension is the edge of two rows: with a border, half of each value is the border's (as on an H200). */
    if (axes == 1 && !t->layered) {
      x = on_edge;
      axes = 2;
    }
    for (int a = 0; a < axes; a++) {
      at[a] = place(t, x[a], extent[a]);
      int64_t last = (int64_t)(extent[a] - 1) << PLACE_NBITS;
      if (vgx_sim_texel_mode(t, a) == VGX_SIM_CLAMP) /* no weight falls beyond the edge */
        at[a] = at[a] < 0 ? 0 : at[a] < last ? at[a] : last;
    }
    vgx_sim_filter_add(corners, t, l, at, axes, layer, weight, pass);
    return;
  }
  for (int a = 0; a < axes; a++)
    at[a] = vgx_sim_texel_index(t, a, position(t, x[a], extent[a], false) >> COORDINATE_NBITS, extent[a]);
  corners->weight[corners->count] = weight;
  corners->pass[corners->count] = pass;
  corners->texel[corners->count++] = vgx_sim_texel_read(t, l, at[0], at[1], at[2], corners->raw);
}

/* A level of detail in 256ths, cut off towards 0. */
static int64_t level_of(float x) {
  return x < 0 ? -fixed(-(double)x, 1 << LEVEL_NBITS) : fixed((double)x, 1 << LEVEL_NBITS);
}

static struct vgx_sim_texel sample(const struct vgx_sim_texture *t, const float *x, int axes, int64_t layer,
                                   int64_t detail) {
  struct vgx_sim_corners corners;
  int64_t least = level_of(t->least), most = level_of(t->most), last = (int64_t)(t->level_count - 1) << LEVEL_NBITS;
  detail += level_of(t->bias);
  detail = detail < least ? least : detail;
  detail = detail < most ? detail : most;
  detail = detail < 0 ? 0 : detail < last ? detail : last;
  int64_t level = detail >> LEVEL_NBITS, part = detail & (VGX_SIM_WHOLE - 1);
  if (t->mipmap_filter == 0) {
    level += part >= VGX_SIM_WHOLE / 2;
    part = 0;
  }
  corners.count = 0;
  corners.raw = !vgx_sim_filter_is_float(t) && (t->filter == 1 || part);
  sample_level(&corners, t, &t->levels[level], x, axes, layer, VGX_SIM_WHOLE - (int)part, 0);
  if (part)
    sample_level(&corners, t, &t->levels[level + 1], x, axes, layer, (int)part, 2);
  return t->filter == 0 && !part ? corners.texel[0] : vgx_sim_filter_sum(&corners, t);
}

/* The face of a cube that a direction meets, and where on it. Of equal components z goes before y, and y before x. */
static int64_t face_of(const float d[3], float x[2]) {
  float ax = fabsf(d[0]), ay = fabsf(d[1]), az = fabsf(d[2]), m;
  int64_t face;
  if (az >= ay && az >= ax) {
    face = 4 + (d[2] < 0);
    m = az;
    x[0] = d[2] < 0 ? -d[0] : d[0];
    x[1] = -d[1];
  } else if (ay >= ax) {
    face = 2 + (d[1] < 0);
    m = ay;
    x[0] = d[0];
    x[1] = d[1] < 0 ? -d[2] : d[2];
  } else {
    face = d[0] < 0;
    m = ax;
    x[0] = d[0] < 0 ? d[2] : -d[2];
    x[1] = -d[1];
  }
  for (int i = 0; i < 2; i++)
    x[i] = (x[i] / m + 1) / 2;
  return face;
}

/* Layers are unsigned: one below 0 is the last. */
static int64_t clamp_layer(uint32_t layer, int64_t count) { return layer < count ? layer : count - 1; }

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
static struct vgx_sim_texel fetch(const struct vgx_sim_texture *t, const int64_t i[3], int axes, int64_t layer) {
  const struct vgx_sim_level *l = &t->levels[0];
  const uint32_t extent[3] = {l->width, l->height, l->depth};
  int64_t at[3] = {0, 0, layer};
  for (int a = 0; a < axes; a++) {
    if (t->linear && (i[a] < 0 || i[a] >= extent[a]))
      return (struct vgx_sim_texel){{0}};
    at[a] = vgx_sim_texel_index(t, a, i[a], extent[a]);
  }
  return vgx_sim_texel_read(t, l, at[0], at[1], at[2], false);
}

static int64_t detail_of(const struct vgx_sim_texture *t, const uint64_t *in, uint32_t lane, int axes) {
  const struct vgx_sim_level *l = &t->levels[0];
  const uint32_t extent[3] = {l->width, l->height, l->depth}, one[3] = {1, 1, 1};
  float gradient[2][3] = {{0}, {0}};
  for (int d = 0; d < 2; d++)
    for (int a = 0; a < axes; a++)
      gradient[d][a] = vgx_sim_as_float((uint32_t)in[(ROW_EXTRA + d * axes + a) * 32 + (int)lane]);
  return vgx_sim_detail_level(gradient, t->normalized ? extent : one, axes);
}

static void gather(const struct vgx_sim_texture *t, const float *x, int64_t layer, uint32_t component, uint64_t *out) {
  const struct vgx_sim_level *l = &t->levels[0];
  const uint32_t extent[2] = {l->width, l->height};
  static const int corner[4][2] = {{0, 1}, {1, 1}, {1, 0}, {0, 0}};
  int64_t index[2];
  for (int a = 0; a < 2; a++)
    index[a] = place(t, x[a], extent[a]) >> PLACE_NBITS;
  for (int i = 0; i < 4; i++) {
    int64_t at[2];
    for (int a = 0; a < 2; a++)
      at[a] = vgx_sim_texel_index(t, a, index[a] + corner[i][a], extent[a]);
    out[i * 32] = vgx_sim_texel_read(t, l, at[0], at[1], layer, false).bits[component];
  }
}

static const char *sample_lane(const struct vgx_sim_texture *t, const struct form *f, const uint64_t *in, uint32_t lane,
                               uint64_t *out) {
  bool cube = f->geometry == GEOMETRY_CUBE || f->geometry == GEOMETRY_ACUBE;
  int first = ROW_COORDINATES + is_layered(f->geometry), axes = axes_of(f->geometry);
  uint32_t first_layer = is_layered(f->geometry) ? (uint32_t)in[ROW_COORDINATES * 32 + lane] : 0;
  int64_t layer;
  float x[3] = {0};
  if (is_layered(f->geometry) != t->layered || cube != t->cubemap)
    return "a texture of another kind than the instruction reads";
  int64_t layers = t->levels[0].depth;
  if (cube) {
    float direction[3];
    for (int a = 0; a < 3; a++)
      direction[a] = vgx_sim_as_float((uint32_t)in[(first + a) * 32 + (int)lane]);
    int64_t face = face_of(direction, x);
    layer = 6 * clamp_layer(first_layer, layers / 6) + face;
  } else {
    layer = clamp_layer(first_layer, layers);
  }
  struct vgx_sim_texel v;
  if (f->integers) {
    int64_t index[3];
    for (int a = 0; a < axes; a++)
      index[a] = (int32_t)in[(first + a) * 32 + (int)lane];
    v = fetch(t, index, axes, layer);
  } else {
    if (t->linear)
      return "memory of one dimension is read by integer coordinates alone";
    for (int a = 0; a < axes && !cube; a++)
      x[a] = vgx_sim_as_float((uint32_t)in[(first + a) * 32 + (int)lane]);
    if (f->operation == GATHER) {
      gather(t, x, layer, f->component, out + lane);
      return NULL;
    }
    if (f->operation == GRADIENT && t->anisotropic && t->filter == 1)
      return "gradients with anisotropic filters are not supported";
    int64_t detail = f->operation == LEVEL      ? level_of(vgx_sim_as_float((uint32_t)in[ROW_EXTRA * 32 + lane]))
                     : f->operation == GRADIENT ? detail_of(t, in, lane, axes)
                                                : 0;
    v = sample(t, x, axes, layer, detail);
  }
  for (int c = 0; c < 4; c++)
    out[c * 32 + (int)lane] = v.bits[c];
  return NULL;
}

static int64_t clamped(int64_t at, int64_t most) { return at < 0 ? 0 : at < most ? at : most; }

const char vgx_sim_misaligned_surface[] = "a misaligned access of a surface";

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
  if (at[0] % nbytes) /* vectors are aligned as a whole (seen on an H200) */
    return vgx_sim_misaligned_surface;
  bool inside = true;
  for (int a = 0; a < 3; a++)
    inside &= at[a] >= 0 && at[a] <= most[a];
  if (!inside) {
    if (f->beyond == BEYOND_TRAP || most[0] < 0)
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

/* The texture of all lanes; NULL: they have several, or one has none. */
static const struct vgx_sim_texture *texture_of_all(CUcontext ctx, uint32_t mask, const uint64_t *in) {
  if (!mask)
    return NULL;
  uint64_t handle = in[__builtin_ctz(mask)], other = 0;
  for (uint32_t lane = 0; lane < 32; lane++)
    other |= mask >> lane & 1 ? in[lane] ^ handle : 0;
  const struct vgx_sim_texture *t = other ? NULL : vgx_sim_texture_of(handle, false);
  return t && t->ctx == ctx ? t : NULL;
}

/* Sample for the lanes that read the same image; returns the others. */
static uint32_t sample_plane(CUcontext ctx, const struct form *f, uint32_t mask, const uint64_t *in, uint64_t *out) {
  bool plain = (f->geometry == GEOMETRY_1D || f->geometry == GEOMETRY_2D) && !f->integers && f->operation <= GRADIENT;
  const struct vgx_sim_texture *t = plain ? texture_of_all(ctx, mask, in) : NULL;
  const uint64_t *x = in + (size_t)ROW_COORDINATES * 32;
  return t ? vgx_sim_plane_sample(t, mask, x, f->geometry == GEOMETRY_2D ? x + 32 : NULL, out) : mask;
}

const char *vgx_sim_sample(CUcontext ctx, uint64_t bits, uint32_t mask, const uint64_t *in, uint64_t *out) {
  struct form f = unpack(bits);
  if (f.operation == TENSOR)
    return vgx_sim_tensor_copy(bits, mask, in, out);
  bool surface = f.operation == LOAD || f.operation == STORE;
  for (mask = sample_plane(ctx, &f, mask, in, out); mask; mask &= mask - 1) {
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
