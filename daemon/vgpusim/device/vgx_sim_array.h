/* Arrays, textures and surfaces. An array is linear here: rows of whole elements, padded, then slices (planes, layers
 * or faces of a cube). */
#ifndef VGX_SIM_ARRAY_H
#define VGX_SIM_ARRAY_H

#include "vgx_sim_internal.h"

#define VGX_SIM_LEVELS_MAX 20u
#define VGX_SIM_TEXTURES_MAX (1u << 20)

/* One level of detail, or memory that a texture lies over. */
struct vgx_sim_level {
  uint64_t base, pitch, slice;   /* bytes from row to row, from slice to slice */
  uint32_t width, height, depth; /* elements, rows, slices; at least 1 each */
};

struct CUarray_st {
  uint32_t magic;
  CUcontext ctx;
  CUDA_ARRAY3D_DESCRIPTOR desc;
  struct vgx_sim_level level;
  bool part; /* of a mipmapped array, which owns the memory */
};

struct CUmipmappedArray_st {
  uint32_t magic;
  CUcontext ctx;
  CUDA_ARRAY3D_DESCRIPTOR desc;
  uint32_t level_count;
  struct CUarray_st levels[VGX_SIM_LEVELS_MAX];
};

bool vgx_sim_is_array(CUarray array);
bool vgx_sim_is_mipmap(CUmipmappedArray mipmap);

struct vgx_sim_texture {
  uint32_t magic;
  bool surface;
  CUcontext ctx;
  int32_t format;
  uint32_t channels, element_nbytes;
  bool layered, cubemap, linear; /* linear: memory of one dimension, for fetches alone */
  int32_t address_mode[3], filter, mipmap_filter;
  bool as_integer, normalized, srgb, anisotropic;
  float border[4], bias, least, most; /* of the level of detail */
  uint32_t level_count;
  struct vgx_sim_level levels[VGX_SIM_LEVELS_MAX];
};

#endif
