/* Arrays: opaque device memory with a shape, for textures and surfaces. */
#ifndef VGS_ARRAY_H
#define VGS_ARRAY_H

#include "vgs_objects.h"

bool vgs_array_is_valid(const CUDA_ARRAY3D_DESCRIPTOR *desc);

/* The number of levels of a mipmapped array, and the descriptor of one level as an array. */
uint32_t vgs_array_levels(const struct vgs_mipmap *mipmap);
CUDA_ARRAY3D_DESCRIPTOR vgs_array_level(const CUDA_ARRAY3D_DESCRIPTOR *desc, uint32_t level);

static inline struct vgs_array *vgs_array_find(CUarray handle) { return vgs_object_find(VGW_KIND_ARRAY, handle); }

#endif
