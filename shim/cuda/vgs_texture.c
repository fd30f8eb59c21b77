/* Texture and surface objects. The worker creates their values, which kernels receive unchanged. The descriptors are
 * kept here, for the functions that query them. */
#include "vgs_texture.h"
#include "vgs_api.h"
#include "vgs_array.h"
#include "vgs_enter.h"
#include "vgs_session.h"
#include "vgw_shape.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct made {
  uint64_t value;
  bool surface, viewed;
  uint16_t epoch;
  CUDA_RESOURCE_DESC resource;
  CUDA_TEXTURE_DESC texture;
  CUDA_RESOURCE_VIEW_DESC view;
  struct made *next;
};

enum { BUCKETS = 1024 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct made *buckets[BUCKETS];

static struct made **place_locked(uint64_t value, bool surface) {
  struct made **link = &buckets[value % BUCKETS];
  while (*link && ((*link)->value != value || (*link)->surface != surface || (*link)->epoch != vgs_session_epoch()))
    link = &(*link)->next;
  return link;
}

static void remember(const struct made *made) {
  struct made *copy = malloc(sizeof *copy);
  if (!copy)
    return; /* out of memory: the object works, but can be neither queried nor destroyed */
  *copy = *made;
  copy->epoch = vgs_session_epoch();
  pthread_mutex_lock(&lock);
  struct made **link = place_locked(made->value, made->surface);
  struct made *old = *link; /* its context was destroyed: the worker has reused the value */
  copy->next = old ? old->next : NULL;
  *link = copy;
  pthread_mutex_unlock(&lock);
  free(old);
}

static bool find(uint64_t value, bool surface, struct made *found) {
  pthread_mutex_lock(&lock);
  const struct made *made = *place_locked(value, surface);
  if (made)
    *found = *made;
  pthread_mutex_unlock(&lock);
  return made;
}

bool vgs_sampled_remove(uint64_t value, bool surface) {
  pthread_mutex_lock(&lock);
  struct made **link = place_locked(value, surface), *made = *link;
  if (made)
    *link = made->next;
  pthread_mutex_unlock(&lock);
  free(made);
  return made;
}

CUresult vgs_resource_id(const CUDA_RESOURCE_DESC *resource, uint32_t *id) {
  const struct vgs_object *object = NULL;
  *id = 0;
  switch (resource->resType) {
  case CU_RESOURCE_TYPE_ARRAY:
    object = vgs_object_find(VGW_KIND_ARRAY, resource->res.array.hArray);
    break;
  case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
    object = vgs_object_find(VGW_KIND_MIPMAP, resource->res.mipmap.hMipmappedArray);
    break;
  case CU_RESOURCE_TYPE_LINEAR:
    return vgw_element_nbytes(resource->res.linear.format, resource->res.linear.numChannels) ? CUDA_SUCCESS
                                                                                             : CUDA_ERROR_INVALID_VALUE;
  case CU_RESOURCE_TYPE_PITCH2D:
    return vgw_element_nbytes(resource->res.pitch2D.format, resource->res.pitch2D.numChannels)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
  default:
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!object)
    return CUDA_ERROR_INVALID_HANDLE;
  *id = object->id;
  return CUDA_SUCCESS;
}

CUresult vgs_surface_id(const CUDA_RESOURCE_DESC *resource, uint32_t *id) {
  return resource->resType == CU_RESOURCE_TYPE_ARRAY ? vgs_resource_id(resource, id) : CUDA_ERROR_INVALID_VALUE;
}

void vgs_texture_add(uint64_t value, const CUDA_RESOURCE_DESC *resource, const CUDA_TEXTURE_DESC *texture,
                     const CUDA_RESOURCE_VIEW_DESC *view) {
  struct made made = {.value = value, .viewed = view, .resource = *resource, .texture = *texture};
  if (view)
    made.view = *view;
  remember(&made);
}

void vgs_surface_add(uint64_t value, const CUDA_RESOURCE_DESC *resource) {
  remember(&(struct made){.value = value, .surface = true, .resource = *resource});
}

CUresult vgs_cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *pDesc, CUtexObject texObject) {
  struct made made;
  if (!pDesc || !find(texObject, false, &made))
    return CUDA_ERROR_INVALID_VALUE;
  *pDesc = made.resource;
  return CUDA_SUCCESS;
}

CUresult vgs_cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *pDesc, CUtexObject texObject) {
  struct made made;
  if (!pDesc || !find(texObject, false, &made))
    return CUDA_ERROR_INVALID_VALUE;
  *pDesc = made.texture;
  return CUDA_SUCCESS;
}

CUresult vgs_cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *pDesc, CUtexObject texObject) {
  struct made made;
  if (!pDesc || !find(texObject, false, &made) || !made.viewed)
    return CUDA_ERROR_INVALID_VALUE;
  *pDesc = made.view;
  return CUDA_SUCCESS;
}

CUresult vgs_cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *pResDesc, CUsurfObject surfObject) {
  struct made made;
  if (!pResDesc || !find(surfObject, true, &made))
    return CUDA_ERROR_INVALID_VALUE;
  *pResDesc = made.resource;
  return CUDA_SUCCESS;
}
