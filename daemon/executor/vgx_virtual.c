/* Physical memory by id, and tensor maps. A range is the driver's to check: it holds nothing but this session's
 * reservations. */
#include "vgx_custom.h"
#include "vgx_session.h"

static CUresult allocation_of(struct vgx_session *s, uint32_t id, CUmemGenericAllocationHandle *handle) {
  void *object;
  CUresult result = vgx_handle(s, VGW_KIND_ALLOCATION, id, &object);
  *handle = (uintptr_t)object;
  return result == CUDA_SUCCESS && !object ? CUDA_ERROR_INVALID_VALUE : result;
}

CUresult vgx_cuMemCreate(struct vgx_session *s, const struct vgw_req_cuMemCreate *req) {
  if (!s->backend->cuMemCreate)
    return vgx_not_offered(s, "cuMemCreate");
  CUmemAllocationProp prop = req->prop;
  prop.win32HandleMetaData = NULL; /* a pointer of the client's */
  prop.requestedHandleTypes = 0;   /* nothing here may be shared with other processes */
  CUmemGenericAllocationHandle handle = 0;
  if (!vgx_handle_reserve(s, VGW_KIND_ALLOCATION, req->handle))
    return vgx_violation(s, "allocation taken");
  CUresult result = s->backend->cuMemCreate(&handle, req->size, &prop, req->flags);
  vgx_handle_set(s, VGW_KIND_ALLOCATION, req->handle, result == CUDA_SUCCESS ? (void *)(uintptr_t)handle : NULL);
  return result;
}

CUresult vgx_cuMemRelease(struct vgx_session *s, const struct vgw_req_cuMemRelease *req) {
  VGX_DESTROY(s, cuMemRelease, VGW_KIND_ALLOCATION, CUmemGenericAllocationHandle, req->handle);
}

CUresult vgx_cuMemMap(struct vgx_session *s, const struct vgw_req_cuMemMap *req) {
  CUmemGenericAllocationHandle handle;
  if (!s->backend->cuMemMap)
    return vgx_not_offered(s, "cuMemMap");
  CUresult result = allocation_of(s, req->handle, &handle);
  return result == CUDA_SUCCESS ? s->backend->cuMemMap(req->ptr, req->size, req->offset, handle, req->flags) : result;
}

CUresult vgx_cuMemSetAccess(struct vgx_session *s, const struct vgw_req_cuMemSetAccess *req, const void *desc) {
  enum { MAX_DESCRIPTIONS = 64 };
  CUmemAccessDesc access[MAX_DESCRIPTIONS];
  if (req->nbytes % sizeof *access || req->nbytes > sizeof access)
    return vgx_violation(s, "access descriptions");
  if (!s->backend->cuMemSetAccess)
    return vgx_not_offered(s, "cuMemSetAccess");
  memcpy(access, desc, req->nbytes);
  return s->backend->cuMemSetAccess(req->ptr, req->size, access, req->nbytes / sizeof *access);
}

CUresult vgx_cuMemGetAccess(struct vgx_session *s, const struct vgw_req_cuMemGetAccess *req,
                            struct vgw_rep_cuMemGetAccess *rep) {
  unsigned long long flags = 0;
  CUmemLocation location = req->location;
  if (!s->backend->cuMemGetAccess)
    return vgx_not_offered(s, "cuMemGetAccess");
  CUresult result = s->backend->cuMemGetAccess(&flags, &location, req->ptr);
  rep->flags = flags;
  return result;
}

CUresult vgx_vgpuTensorMap(struct vgx_session *s, const struct vgw_req_vgpuTensorMap *req, const void *arguments,
                           void *map, uint64_t *map_nbytes) {
  enum { TILED = 1, IM2COL = 2, REPLACE = 3, MAX_RANK = 5 };
  struct vgw_tensor_map a;
  CUtensorMap encoded;
  const struct vgx_backend *b = s->backend;
  CUresult result;
  if (req->nbytes != sizeof a || *map_nbytes != sizeof encoded)
    return vgx_violation(s, "tensor map arguments");
  memcpy(&a, arguments, sizeof a);
  if (req->form != REPLACE && (a.rank == 0 || a.rank > MAX_RANK))
    return CUDA_ERROR_INVALID_VALUE;
  if (!b->cuTensorMapEncodeTiled || !b->cuTensorMapEncodeIm2col || !b->cuTensorMapReplaceAddress)
    return vgx_not_offered(s, "cuTensorMapEncode");
  if (req->form == TILED) {
    result = b->cuTensorMapEncodeTiled(&encoded, a.data_type, a.rank, (void *)a.address, a.dims, a.strides, a.box,
                                       a.element_strides, a.interleave, a.swizzle, a.l2_promotion, a.oob_fill);
  } else if (req->form == IM2COL) {
    result = b->cuTensorMapEncodeIm2col(&encoded, a.data_type, a.rank, (void *)a.address, a.dims, a.strides, a.lower,
                                        a.upper, a.channels, a.pixels, a.element_strides, a.interleave, a.swizzle,
                                        a.l2_promotion, a.oob_fill);
  } else if (req->form == REPLACE) {
    memcpy(&encoded, a.map, sizeof encoded);
    result = b->cuTensorMapReplaceAddress(&encoded, (void *)a.address);
  } else {
    return vgx_violation(s, "form of tensor map");
  }
  if (result == CUDA_SUCCESS)
    memcpy(map, &encoded, sizeof encoded);
  return result;
}
