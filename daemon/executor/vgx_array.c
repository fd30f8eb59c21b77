/* Arrays by id, copies of which a side is an array, textures and surfaces. A texture's value is the backend's and known
 * to the client, since kernels get it as it is; only values that this session made are destroyed. */
#include <stdlib.h>
#include <string.h>

#include "vgx_custom.h"
#include "vgx_memory.h"
#include "vgx_session.h"

enum { OBJECTS_MAX = 1 << 20 };

/* Whether packed rows fill a box of one slice. */
static bool packed(uint64_t width, uint64_t height, uint64_t depth, uint64_t nbytes) {
  return width && height && depth == 1 && width <= VGW_PIECE_NBYTES && height <= VGW_PIECE_NBYTES &&
         width * height == nbytes;
}

CUresult vgx_vgpuArrayWrite(struct vgx_session *s, const struct vgw_req_vgpuArrayWrite *req, CUarray array,
                            CUstream stream, const void *rows) {
  if (!s->backend->cuMemcpy3DAsync_v2)
    return vgx_not_offered(s, "cuMemcpy3DAsync");
  if (!packed(req->width, req->height, req->depth, req->nbytes))
    return vgx_violation(s, "rows do not fill the box");
  CUDA_MEMCPY3D copy = {
      .srcMemoryType = CU_MEMORYTYPE_HOST,
      .srcHost = rows,
      .srcPitch = req->width,
      .srcHeight = req->height,
      .dstMemoryType = CU_MEMORYTYPE_ARRAY,
      .dstArray = array,
      .dstXInBytes = req->x,
      .dstY = req->y,
      .dstZ = req->z,
      .WidthInBytes = req->width,
      .Height = req->height,
      .Depth = 1,
  };
  return s->backend->cuMemcpy3DAsync_v2(&copy, stream);
}

CUresult vgx_vgpuArrayRead(struct vgx_session *s, const struct vgw_req_vgpuArrayRead *req, CUarray array,
                           CUstream stream, void *rows, uint64_t *rows_nbytes) {
  if (!s->backend->cuMemcpy3DAsync_v2)
    return vgx_not_offered(s, "cuMemcpy3DAsync");
  if (!packed(req->width, req->height, req->depth, *rows_nbytes))
    return vgx_violation(s, "rows do not fill the box");
  CUDA_MEMCPY3D copy = {
      .srcMemoryType = CU_MEMORYTYPE_ARRAY,
      .srcArray = array,
      .srcXInBytes = req->x,
      .srcY = req->y,
      .srcZ = req->z,
      .dstMemoryType = CU_MEMORYTYPE_HOST,
      .dstHost = rows,
      .dstPitch = req->width,
      .dstHeight = req->height,
      .WidthInBytes = req->width,
      .Height = req->height,
      .Depth = 1,
  };
  CUresult result = s->backend->cuMemcpy3DAsync_v2(&copy, stream);
  return result == CUDA_SUCCESS ? s->backend->cuStreamSynchronize(stream) : result;
}

/* Whether a box of rows in memory is the client's to name. */
static bool box_is_reachable(struct vgx_session *s, uint64_t address, uint64_t pitch, uint64_t rows,
                             const struct vgw_req_vgpuArrayCopy *req) {
  uint64_t slice, extent, part;
  return !__builtin_mul_overflow(pitch, rows, &slice) && !__builtin_mul_overflow(slice, req->depth - 1, &extent) &&
         !__builtin_mul_overflow(pitch, req->height - 1, &part) && !__builtin_add_overflow(extent, part, &extent) &&
         !__builtin_add_overflow(extent, req->width, &extent) && vgx_is_reachable(s, address, extent);
}

CUresult vgx_vgpuArrayCopy(struct vgx_session *s, const struct vgw_req_vgpuArrayCopy *req, CUarray dst, CUarray src,
                           CUstream stream) {
  if (!s->backend->cuMemcpy3DAsync_v2)
    return vgx_not_offered(s, "cuMemcpy3DAsync");
  if (!req->width || !req->height || !req->depth)
    return CUDA_SUCCESS;
  if (!dst && !src)
    return vgx_violation(s, "a copy of arrays without one");
  CUDA_MEMCPY3D copy = {.WidthInBytes = req->width, .Height = req->height, .Depth = req->depth};
  if (dst) {
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = dst;
    copy.dstXInBytes = req->dstX;
    copy.dstY = req->dstY;
    copy.dstZ = req->dstZ;
  } else {
    copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    copy.dstDevice = req->dstAddress;
    copy.dstPitch = req->dstPitch;
    copy.dstHeight = req->dstRows;
    if (!box_is_reachable(s, req->dstAddress, req->dstPitch, req->dstRows, req))
      return CUDA_ERROR_INVALID_VALUE;
  }
  if (src) {
    copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.srcArray = src;
    copy.srcXInBytes = req->srcX;
    copy.srcY = req->srcY;
    copy.srcZ = req->srcZ;
  } else {
    copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
    copy.srcDevice = req->srcAddress;
    copy.srcPitch = req->srcPitch;
    copy.srcHeight = req->srcRows;
    if (!box_is_reachable(s, req->srcAddress, req->srcPitch, req->srcRows, req))
      return CUDA_ERROR_INVALID_VALUE;
  }
  return s->backend->cuMemcpy3DAsync_v2(&copy, stream);
}

/* --- textures and surfaces --- */

static CUresult keep(struct vgx_session *s, uint64_t value, bool surface) {
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
  return result;
}

static bool drop(struct vgx_session *s, uint64_t value, bool surface) {
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

/* The backend's own resource: arrays by id, memory if it is the client's to name. */
static CUresult resource_of(struct vgx_session *s, CUDA_RESOURCE_DESC *resource, uint32_t id) {
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

CUresult vgx_cuTexObjectCreate(struct vgx_session *s, const struct vgw_req_cuTexObjectCreate *req,
                               struct vgw_rep_cuTexObjectCreate *rep) {
  CUDA_RESOURCE_DESC resource = req->resource;
  CUtexObject value = 0;
  if (!s->backend->cuTexObjectCreate || !s->backend->cuTexObjectDestroy)
    return vgx_not_offered(s, "cuTexObjectCreate");
  CUresult result = resource_of(s, &resource, req->array);
  if (result == CUDA_SUCCESS)
    result = s->backend->cuTexObjectCreate(&value, &resource, &req->texture, req->viewed ? &req->view : NULL);
  if (result == CUDA_SUCCESS && (result = keep(s, value, false)) != CUDA_SUCCESS)
    s->backend->cuTexObjectDestroy(value);
  rep->object = value;
  return result;
}

CUresult vgx_cuTexObjectDestroy(struct vgx_session *s, const struct vgw_req_cuTexObjectDestroy *req) {
  return drop(s, req->texObject, false) ? s->backend->cuTexObjectDestroy(req->texObject) : CUDA_ERROR_INVALID_VALUE;
}

CUresult vgx_cuSurfObjectCreate(struct vgx_session *s, const struct vgw_req_cuSurfObjectCreate *req, CUarray array,
                                struct vgw_rep_cuSurfObjectCreate *rep) {
  CUDA_RESOURCE_DESC resource;
  CUsurfObject value = 0;
  (void)req;
  memset(&resource, 0, sizeof resource);
  if (!s->backend->cuSurfObjectCreate || !s->backend->cuSurfObjectDestroy)
    return vgx_not_offered(s, "cuSurfObjectCreate");
  resource.res.array.hArray = array;
  CUresult result = s->backend->cuSurfObjectCreate(&value, &resource);
  if (result == CUDA_SUCCESS && (result = keep(s, value, true)) != CUDA_SUCCESS)
    s->backend->cuSurfObjectDestroy(value);
  rep->object = value;
  return result;
}

CUresult vgx_cuSurfObjectDestroy(struct vgx_session *s, const struct vgw_req_cuSurfObjectDestroy *req) {
  return drop(s, req->surfObject, true) ? s->backend->cuSurfObjectDestroy(req->surfObject) : CUDA_ERROR_INVALID_VALUE;
}
