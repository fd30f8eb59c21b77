/* Textures and surfaces. The client knows the backend's value of a texture, since kernels receive it unchanged; only
 * values that this session created can be destroyed. */
#include <stdlib.h>

#include "vgx_memory.h"
#include "vgx_sampled.h"

enum { OBJECTS_MAX = 1 << 20 };

CUresult vgx_sampled_add(struct vgx_session *s, uint64_t value, bool surface) {
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_lock(&s->table_lock);
  if (s->sampled_count == s->sampled_capacity && s->sampled_count < OBJECTS_MAX) {
    uint32_t capacity = s->sampled_capacity ? 2 * s->sampled_capacity : 64;
    struct vgx_sampled *grown = realloc(s->sampled, capacity * sizeof *grown);
    if (grown) {
      s->sampled = grown;
      s->sampled_capacity = capacity;
    }
  }
  if (s->sampled_count < s->sampled_capacity) {
    s->sampled[s->sampled_count++] = (struct vgx_sampled){value, surface};
    result = CUDA_SUCCESS;
  }
  pthread_mutex_unlock(&s->table_lock);
  if (result != CUDA_SUCCESS)
    (surface ? s->backend->cuSurfObjectDestroy : s->backend->cuTexObjectDestroy)(value);
  return result;
}

bool vgx_sampled_remove(struct vgx_session *s, uint64_t value, bool surface) {
  bool known = false;
  pthread_mutex_lock(&s->table_lock);
  for (uint32_t i = s->sampled_count; i-- > 0 && !known;)
    if (s->sampled[i].value == value && s->sampled[i].surface == surface) {
      s->sampled[i] = s->sampled[--s->sampled_count];
      known = true;
    }
  pthread_mutex_unlock(&s->table_lock);
  return known;
}

CUresult vgx_resource_of(struct vgx_session *s, CUDA_RESOURCE_DESC *resource, uint32_t id) {
  void *object;
  CUresult result;
  uint64_t nbytes;
  switch (resource->resType) {
  case CU_RESOURCE_TYPE_ARRAY:
    result = vgx_handle(s, VGW_KIND_ARRAY, id, &object);
    resource->res.array.hArray = object;
    return result == CUDA_SUCCESS && !object ? CUDA_ERROR_INVALID_HANDLE : result;
  case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
    result = vgx_handle(s, VGW_KIND_MIPMAP, id, &object);
    resource->res.mipmap.hMipmappedArray = object;
    return result == CUDA_SUCCESS && !object ? CUDA_ERROR_INVALID_HANDLE : result;
  case CU_RESOURCE_TYPE_LINEAR:
    return vgx_is_reachable(s, resource->res.linear.devPtr, resource->res.linear.sizeInBytes)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
  case CU_RESOURCE_TYPE_PITCH2D:
    return !__builtin_mul_overflow(resource->res.pitch2D.pitchInBytes, resource->res.pitch2D.height, &nbytes) &&
                   vgx_is_reachable(s, resource->res.pitch2D.devPtr, nbytes)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_ERROR_INVALID_VALUE;
}
