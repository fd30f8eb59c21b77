/* The descriptors with which textures and surfaces were created. */
#ifndef VGS_TEXTURE_H
#define VGS_TEXTURE_H

#include "vgw_cuda.h"
#include <stdbool.h>
#include <stdint.h>

/* The id of a resource's array or mipmapped array, 0 for memory; the resource of a surface must be an array. */
CUresult vgs_resource_id(const CUDA_RESOURCE_DESC *resource, uint32_t *id);
CUresult vgs_surface_id(const CUDA_RESOURCE_DESC *resource, uint32_t *id);

/* Keep a texture's descriptors for the functions that query them; `view` may be NULL. */
void vgs_texture_add(uint64_t value, const CUDA_RESOURCE_DESC *resource, const CUDA_TEXTURE_DESC *texture,
                     const CUDA_RESOURCE_VIEW_DESC *view);
void vgs_surface_add(uint64_t value, const CUDA_RESOURCE_DESC *resource);

/* Forget a texture or surface. False: there is no such one. */
bool vgs_sampled_remove(uint64_t value, bool surface);

#endif
