/* Arrays: a shape over device memory of a context. Locking: none but the arena's; the caller destroys a handle only
 * when nothing uses it. */
#include "vgx_sim_array.h"

#include <stdlib.h>

#include "vgw_shape.h"
#include "vgx_sim_queue.h"
#include "vgx_sim_runtime.h"

#define ROW_NBYTES 64u
#define EXTENT_MAX 131072u /* elements of any dimension; what a card allows is less for most shapes */

enum { FLAGS_KNOWN = 0x1f }; /* layered, surfaces, cube map, gather, depth */

bool vgx_sim_is_array(CUarray array) { return array && array->magic == VGX_SIM_ARRAY; }
bool vgx_sim_is_mipmap(CUmipmappedArray mipmap) { return mipmap && mipmap->magic == VGX_SIM_MIPMAP; }

static CUresult check(const CUDA_ARRAY3D_DESCRIPTOR *d) {
  bool layered = d->Flags & CUDA_ARRAY3D_LAYERED, cubemap = d->Flags & CUDA_ARRAY3D_CUBEMAP;
  if (d->Width == 0 || d->Width > EXTENT_MAX || d->Height > EXTENT_MAX || d->Depth > EXTENT_MAX ||
      (d->Depth && !d->Height && !layered) || (layered && !d->Depth))
    return CUDA_ERROR_INVALID_VALUE;
  if (cubemap && (d->Width != d->Height || d->Depth == 0 || d->Depth % 6 || (!layered && d->Depth != 6)))
    return CUDA_ERROR_INVALID_VALUE;
  if (!vgw_element_nbytes(d->Format, d->NumChannels))
    return CUDA_ERROR_INVALID_VALUE;
  return d->Flags & ~(uint32_t)FLAGS_KNOWN ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS; /* sparse, deferred, video */
}

static uint32_t halved(size_t extent, uint32_t level) { return extent >> level ? (uint32_t)(extent >> level) : 1; }

/* Compute a level's layout, except for `base`. Returns its size in bytes. */
static uint64_t lay_out(CUDA_ARRAY3D_DESCRIPTOR *d, uint32_t level, struct vgx_sim_level *l) {
  *l = (struct vgx_sim_level){.width = halved(d->Width, level), .height = halved(d->Height, level)};
  l->depth = d->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP) ? (uint32_t)d->Depth : halved(d->Depth, level);
  l->pitch = (uint64_t)l->width * vgw_element_nbytes(d->Format, d->NumChannels);
  l->pitch = (l->pitch + ROW_NBYTES - 1) & ~(uint64_t)(ROW_NBYTES - 1);
  l->slice = l->pitch * l->height;
  d->Width = l->width;
  d->Height = d->Height ? l->height : 0;
  d->Depth = d->Depth ? l->depth : 0;
  return l->slice * l->depth; /* below 2^57 */
}

CUresult vgx_sim_cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *d) {
  CUcontext ctx;
  CUresult result = vgx_sim_enter(&ctx);
  if (result == CUDA_SUCCESS)
    result = pHandle && d ? check(d) : CUDA_ERROR_INVALID_VALUE;
  if (result != CUDA_SUCCESS)
    return result;
  CUarray made = calloc(1, sizeof *made);
  if (!made)
    return CUDA_ERROR_OUT_OF_MEMORY;
  *made = (struct CUarray_st){.magic = VGX_SIM_ARRAY, .ctx = ctx, .desc = *d};
  uint64_t nbytes = lay_out(&made->desc, 0, &made->level);
  result = vgx_sim_arena_allocate(&ctx->device->arena, nbytes, ctx, NULL, &made->level.base);
  if (result != CUDA_SUCCESS) {
    free(made);
    return result;
  }
  *pHandle = made;
  return CUDA_SUCCESS;
}

/* The structs stay as tombstones: textures over an array may outlive it. */
CUresult vgx_sim_cuArrayDestroy(CUarray array) {
  CUcontext ctx;
  CUresult result = vgx_sim_enter(&ctx);
  if (result != CUDA_SUCCESS)
    return result;
  if (!vgx_sim_is_array(array) || array->part)
    return CUDA_ERROR_INVALID_HANDLE;
  vgx_sim_wait_context(array->ctx);
  array->magic = VGX_SIM_DEAD;
  vgx_sim_arena_free(&array->ctx->device->arena, array->level.base, NULL);
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuMipmappedArrayCreate(CUmipmappedArray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *d,
                                        unsigned int levels) {
  CUcontext ctx;
  CUresult result = vgx_sim_enter(&ctx);
  if (result == CUDA_SUCCESS)
    result = pHandle && d && levels ? check(d) : CUDA_ERROR_INVALID_VALUE;
  if (result != CUDA_SUCCESS)
    return result;
  size_t largest = d->Width > d->Height ? d->Width : d->Height;
  if (!(d->Flags & CUDA_ARRAY3D_LAYERED) && d->Depth > largest)
    largest = d->Depth;
  while (levels > 1 && !(largest >> (levels - 1 < VGX_SIM_LEVELS_MAX ? levels - 1 : VGX_SIM_LEVELS_MAX)))
    levels = levels > VGX_SIM_LEVELS_MAX ? VGX_SIM_LEVELS_MAX : levels - 1;
  CUmipmappedArray made = calloc(1, sizeof *made);
  if (!made)
    return CUDA_ERROR_OUT_OF_MEMORY;
  *made = (struct CUmipmappedArray_st){.magic = VGX_SIM_MIPMAP, .ctx = ctx, .desc = *d, .level_count = levels};
  uint64_t nbytes = 0, base;
  for (uint32_t i = 0; i < levels; i++) {
    struct CUarray_st *l = &made->levels[i];
    *l = (struct CUarray_st){.magic = VGX_SIM_ARRAY, .ctx = ctx, .desc = *d, .part = true};
    uint64_t offset = nbytes;
    nbytes += lay_out(&l->desc, i, &l->level);
    l->level.base = offset;
  }
  result = vgx_sim_arena_allocate(&ctx->device->arena, nbytes, ctx, NULL, &base);
  if (result != CUDA_SUCCESS) {
    free(made);
    return result;
  }
  for (uint32_t i = 0; i < levels; i++)
    made->levels[i].level.base += base;
  *pHandle = made;
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuMipmappedArrayGetLevel(CUarray *pLevelArray, CUmipmappedArray mipmap, unsigned int level) {
  if (!vgx_sim_is_mipmap(mipmap))
    return CUDA_ERROR_INVALID_HANDLE;
  if (!pLevelArray || level >= mipmap->level_count)
    return CUDA_ERROR_INVALID_VALUE;
  *pLevelArray = &mipmap->levels[level];
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuMipmappedArrayDestroy(CUmipmappedArray mipmap) {
  CUcontext ctx;
  CUresult result = vgx_sim_enter(&ctx);
  if (result != CUDA_SUCCESS)
    return result;
  if (!vgx_sim_is_mipmap(mipmap))
    return CUDA_ERROR_INVALID_HANDLE;
  vgx_sim_wait_context(mipmap->ctx);
  mipmap->magic = VGX_SIM_DEAD;
  for (uint32_t i = 0; i < mipmap->level_count; i++)
    mipmap->levels[i].magic = VGX_SIM_DEAD;
  vgx_sim_arena_free(&mipmap->ctx->device->arena, mipmap->levels[0].level.base, NULL);
  return CUDA_SUCCESS;
}
