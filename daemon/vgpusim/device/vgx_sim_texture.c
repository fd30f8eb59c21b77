/* Texture and surface objects. A handle is an index into a table and the number of earlier uses of that entry, so that
 * a stale handle is recognised.
 *
 * Locking: `lock` for places; kernels look them up without it, so an object is only freed when the work of its context
 * that was submitted before its handle ended is done. */
#include "vgx_sim_texture.h"

#include "vgw_shape.h"
#include "vgx_sim_array.h"
#include "vgx_sim_memory.h"
#include "vgx_sim_queue.h"
#include "vgx_sim_runtime.h"

#include <stdlib.h>
#include <string.h>

#define INDEX_NBITS 20u

struct place {
  struct vgx_sim_texture *texture; /* atomic */
  uint32_t uses;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct place *places; /* VGX_SIM_TEXTURES_MAX, made with the first object; atomic */
static uint32_t next_place;

const struct vgx_sim_texture *vgx_sim_texture_of(uint64_t handle, bool surface) {
  struct place *all = __atomic_load_n(&places, __ATOMIC_ACQUIRE);
  uint64_t index = handle & (VGX_SIM_TEXTURES_MAX - 1);
  if (!all || index == 0)
    return NULL;
  const struct vgx_sim_texture *t = __atomic_load_n(&all[index].texture, __ATOMIC_ACQUIRE);
  return t && t->surface == surface && all[index].uses == handle >> INDEX_NBITS ? t : NULL;
}

static CUresult publish(const struct vgx_sim_texture *texture, uint64_t *handle) {
  struct vgx_sim_texture *made = malloc(sizeof *made);
  if (!made)
    return CUDA_ERROR_OUT_OF_MEMORY;
  *made = *texture;
  pthread_mutex_lock(&lock);
  if (!places)
    __atomic_store_n(&places, calloc(VGX_SIM_TEXTURES_MAX, sizeof *places), __ATOMIC_RELEASE);
  uint32_t index = 0;
  for (uint32_t i = 1; places && i < VGX_SIM_TEXTURES_MAX && !index; i++) {
    next_place = next_place + 1 < VGX_SIM_TEXTURES_MAX ? next_place + 1 : 1;
    if (!places[next_place].texture)
      index = next_place;
  }
  if (index) {
    places[index].uses++;
    __atomic_store_n(&places[index].texture, made, __ATOMIC_RELEASE);
    *handle = (uint64_t)places[index].uses << INDEX_NBITS | index;
  }
  pthread_mutex_unlock(&lock);
  if (index)
    return CUDA_SUCCESS;
  free(made);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

static void wait_for_work(CUcontext owner, CUcontext current) {
  if (owner != current)
    vgx_sim_wait_context(owner);
  vgx_sim_wait_context(current);
}

static CUresult destroy(uint64_t handle, bool surface) {
  CUcontext ctx;
  CUresult result = vgx_sim_enter(&ctx);
  if (result != CUDA_SUCCESS)
    return result;
  const struct vgx_sim_texture *known = vgx_sim_texture_of(handle, surface);
  if (!known)
    return CUDA_ERROR_INVALID_VALUE;
  CUcontext owner = known->ctx;
  wait_for_work(owner, ctx);
  struct place *p = &places[handle & (VGX_SIM_TEXTURES_MAX - 1)];
  pthread_mutex_lock(&lock);
  struct vgx_sim_texture *gone = p->uses == handle >> INDEX_NBITS ? p->texture : NULL;
  if (gone)
    __atomic_store_n(&p->texture, NULL, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&lock);
  wait_for_work(owner, ctx); /* kernels that another thread launched meanwhile may have found it */
  free(gone);
  return gone ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static void use_array(struct vgx_sim_texture *t, const CUDA_ARRAY3D_DESCRIPTOR *d) {
  t->format = d->Format;
  t->channels = d->NumChannels;
  t->layered = d->Flags & CUDA_ARRAY3D_LAYERED;
  t->cubemap = d->Flags & CUDA_ARRAY3D_CUBEMAP;
}

/* The format whose values, read as floating-point numbers, are those of a normalised format. */
static int32_t without_norm(int32_t format) {
  static const int32_t plain[] = {CU_AD_FORMAT_UNSIGNED_INT8, CU_AD_FORMAT_UNSIGNED_INT16, CU_AD_FORMAT_SIGNED_INT8,
                                  CU_AD_FORMAT_SIGNED_INT16};
  return plain[(format - CU_AD_FORMAT_UNORM_INT8X1) / 3];
}

static CUresult use_memory(struct vgx_sim_texture *t, const CUDA_RESOURCE_DESC *r) {
  struct vgx_sim_level *l = &t->levels[0];
  t->level_count = 1;
  if (r->resType == CU_RESOURCE_TYPE_LINEAR) {
    t->format = r->res.linear.format;
    t->channels = r->res.linear.numChannels;
    t->linear = true;
    uint32_t element = vgw_element_nbytes(t->format, t->channels);
    uint64_t width = element ? r->res.linear.sizeInBytes / element : 0;
    uint64_t begin = r->res.linear.devPtr, end;
    /* The texture may be larger than the allocation, as on a card, but must not be read there. */
    if (!width || width > UINT32_MAX || __builtin_add_overflow(begin, r->res.linear.sizeInBytes - 1, &end) ||
        !vgx_sim_is_device_range(begin, element) || vgx_sim_device_of(end) != vgx_sim_device_of(begin))
      return CUDA_ERROR_INVALID_VALUE;
    *l = (struct vgx_sim_level){.base = r->res.linear.devPtr, .width = (uint32_t)width, .height = 1, .depth = 1};
    return CUDA_SUCCESS;
  }
  t->format = r->res.pitch2D.format;
  t->channels = r->res.pitch2D.numChannels;
  uint64_t width = r->res.pitch2D.width, height = r->res.pitch2D.height, pitch = r->res.pitch2D.pitchInBytes, nbytes;
  uint32_t element = vgw_element_nbytes(t->format, t->channels);
  if (!element || !width || !height || width > INT32_MAX / 16 || height > INT32_MAX || pitch < width * element ||
      __builtin_mul_overflow(pitch, height - 1, &nbytes) || __builtin_add_overflow(nbytes, width * element, &nbytes) ||
      !vgx_sim_is_device_range(r->res.pitch2D.devPtr, nbytes))
    return CUDA_ERROR_INVALID_VALUE;
  *l = (struct vgx_sim_level){
      .base = r->res.pitch2D.devPtr, .pitch = pitch, .width = (uint32_t)width, .height = (uint32_t)height, .depth = 1};
  return CUDA_SUCCESS;
}

static CUresult use_resource(struct vgx_sim_texture *t, const CUDA_RESOURCE_DESC *r) {
  CUmipmappedArray m = r->res.mipmap.hMipmappedArray;
  switch (r->resType) {
  case CU_RESOURCE_TYPE_ARRAY:
    if (!vgx_sim_is_array(r->res.array.hArray))
      return CUDA_ERROR_INVALID_HANDLE;
    use_array(t, &r->res.array.hArray->desc);
    t->levels[0] = r->res.array.hArray->level;
    t->level_count = 1;
    return CUDA_SUCCESS;
  case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
    if (!vgx_sim_is_mipmap(m))
      return CUDA_ERROR_INVALID_HANDLE;
    use_array(t, &m->desc);
    t->level_count = m->level_count;
    for (uint32_t i = 0; i < m->level_count; i++)
      t->levels[i] = m->levels[i].level;
    return CUDA_SUCCESS;
  case CU_RESOURCE_TYPE_LINEAR:
  case CU_RESOURCE_TYPE_PITCH2D:
    return use_memory(t, r);
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult vgx_sim_cuTexObjectCreate(CUtexObject *pTexObject, const CUDA_RESOURCE_DESC *pResDesc,
                                   const CUDA_TEXTURE_DESC *d, const CUDA_RESOURCE_VIEW_DESC *pResViewDesc) {
  enum {
    FLAGS = CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES | CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION |
    CU_TRSF_SEAMLESS_CUBEMAP | CU_TRSF_SRGB
  };
  struct vgx_sim_texture t = {.magic = VGX_SIM_TEXTURE};
  CUresult result = vgx_sim_enter(&t.ctx);
  if (result != CUDA_SUCCESS)
    return result;
  if (!pTexObject || !pResDesc || !d)
    return CUDA_ERROR_INVALID_VALUE;
  if (pResViewDesc || d->flags & ~(uint32_t)FLAGS) { /* other formats, ranges of layers */
    vgx_sim_log("simulator: textures with a resource view are not supported");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  for (int i = 0; i < 3; i++)
    if (d->addressMode[i] < 0 || d->addressMode[i] > 3)
      return CUDA_ERROR_INVALID_VALUE;
  if (d->filterMode < 0 || d->filterMode > 1 || d->mipmapFilterMode < 0 || d->mipmapFilterMode > 1)
    return CUDA_ERROR_INVALID_VALUE;
  result = use_resource(&t, pResDesc);
  if (result != CUDA_SUCCESS)
    return result;
  t.element_nbytes = vgw_element_nbytes(t.format, t.channels);
  bool fractions = t.format >= CU_AD_FORMAT_UNORM_INT8X1; /* also with CU_TRSF_READ_AS_INTEGER, as on an H200 */
  if (fractions)
    t.format = without_norm(t.format);
  memcpy(t.address_mode, d->addressMode, sizeof t.address_mode);
  memcpy(t.border, d->borderColor, sizeof t.border);
  t.filter = d->filterMode;
  t.mipmap_filter = d->mipmapFilterMode;
  t.anisotropic = d->maxAnisotropy > 1;
  t.bias = d->mipmapLevelBias;
  t.least = d->minMipmapLevelClamp;
  t.most = d->maxMipmapLevelClamp;
  t.as_integer = d->flags & CU_TRSF_READ_AS_INTEGER;
  t.normalized = d->flags & CU_TRSF_NORMALIZED_COORDINATES;
  bool wide = t.format == CU_AD_FORMAT_UNSIGNED_INT32 || t.format == CU_AD_FORMAT_SIGNED_INT32;
  bool floats = t.format == CU_AD_FORMAT_FLOAT || t.format == CU_AD_FORMAT_HALF;
  t.as_integer = !floats && !fractions && (t.as_integer || wide);
  t.srgb = d->flags & CU_TRSF_SRGB && !t.as_integer && !fractions && t.format == CU_AD_FORMAT_UNSIGNED_INT8;
  if (t.srgb && t.mipmap_filter == 1) { /* what a card computes there has not been found out */
    vgx_sim_log("simulator: linear filters between mipmap levels in sRGB are not supported");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (t.cubemap && t.filter == 1 && d->flags & CU_TRSF_SEAMLESS_CUBEMAP) {
    vgx_sim_log("simulator: linear filters across a cube's edges are not supported");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  uint64_t handle;
  result = publish(&t, &handle);
  if (result == CUDA_SUCCESS)
    *pTexObject = handle;
  return result;
}

CUresult vgx_sim_cuTexObjectDestroy(CUtexObject texObject) { return destroy(texObject, false); }

CUresult vgx_sim_cuSurfObjectCreate(CUsurfObject *pSurfObject, const CUDA_RESOURCE_DESC *pResDesc) {
  struct vgx_sim_texture t = {.magic = VGX_SIM_TEXTURE, .surface = true};
  CUresult result = vgx_sim_enter(&t.ctx);
  if (result != CUDA_SUCCESS)
    return result;
  if (!pSurfObject || !pResDesc || pResDesc->resType != CU_RESOURCE_TYPE_ARRAY)
    return CUDA_ERROR_INVALID_VALUE;
  result = use_resource(&t, pResDesc); /* with or without CUDA_ARRAY3D_SURFACE_LDST, as on an H200 */
  if (result != CUDA_SUCCESS)
    return result;
  if (t.format >= CU_AD_FORMAT_UNORM_INT8X1)
    return CUDA_ERROR_NOT_SUPPORTED; /* what a card does is not known */
  t.element_nbytes = vgw_element_nbytes(t.format, t.channels);
  uint64_t handle;
  result = publish(&t, &handle);
  if (result == CUDA_SUCCESS)
    *pSurfObject = handle;
  return result;
}

CUresult vgx_sim_cuSurfObjectDestroy(CUsurfObject surfObject) { return destroy(surfObject, true); }
