/* Contexts, streams, events, pools: destroying also forgets the id. */
#include "vgx_custom.h"
#include "vgx_ipc.h"
#include "vgx_session.h"

static CUresult destroy_context(struct vgx_session *s, uint32_t id) {
  VGX_DESTROY(s, cuCtxDestroy_v2, VGW_KIND_CONTEXT, CUcontext, id);
}

static CUresult context_gone(struct vgx_session *s, CUresult result) {
  if (result == CUDA_SUCCESS)
    vgx_ipc_context_gone(s);
  return result;
}

CUresult vgx_cuCtxDestroy_v2(struct vgx_session *s, const struct vgw_req_cuCtxDestroy_v2 *req) {
  return context_gone(s, destroy_context(s, req->ctx));
}

CUresult vgx_cuStreamDestroy_v2(struct vgx_session *s, const struct vgw_req_cuStreamDestroy_v2 *req) {
  VGX_DESTROY(s, cuStreamDestroy_v2, VGW_KIND_STREAM, CUstream, req->hStream);
}

CUresult vgx_cuEventDestroy_v2(struct vgx_session *s, const struct vgw_req_cuEventDestroy_v2 *req) {
  VGX_DESTROY(s, cuEventDestroy_v2, VGW_KIND_EVENT, CUevent, req->hEvent);
}

CUresult vgx_cuModuleUnload(struct vgx_session *s, const struct vgw_req_cuModuleUnload *req) {
  VGX_DESTROY(s, cuModuleUnload, VGW_KIND_MODULE, CUmodule, req->hmod);
}

CUresult vgx_vgpuLibraryManaged(struct vgx_session *s, const struct vgw_req_vgpuLibraryManaged *req, const char *name,
                                struct vgw_rep_vgpuLibraryManaged *rep) {
  char text[VGX_TEXT_NBYTES];
  void *library;
  uint64_t placed = 0, nbytes = 0;
  CUresult result = vgx_handle(s, VGW_KIND_LIBRARY, req->library, &library);
  if (result != CUDA_SUCCESS)
    return result;
  if (!vgx_text(text, name, req->name_nbytes))
    return CUDA_ERROR_NOT_FOUND;
  if (!s->backend->managed_variable)
    return vgx_not_offered(s, "cuLibraryGetManaged");
  result = s->backend->managed_variable(library, text, 0, &placed, &nbytes);
  if (result == CUDA_SUCCESS && req->address) {
    if (!vgx_is_pinned(s, req->address, nbytes))
      return vgx_violation(s, "managed variable outside pinned memory");
    result = s->backend->managed_variable(library, text, req->address, &placed, &nbytes);
  }
  rep->placed = placed;
  rep->nbytes = nbytes;
  return result;
}

CUresult vgx_cuLibraryUnload(struct vgx_session *s, const struct vgw_req_cuLibraryUnload *req) {
  VGX_DESTROY(s, cuLibraryUnload, VGW_KIND_LIBRARY, CUlibrary, req->library);
}

CUresult vgx_cuMemPoolDestroy(struct vgx_session *s, const struct vgw_req_cuMemPoolDestroy *req) {
  VGX_DESTROY(s, cuMemPoolDestroy, VGW_KIND_MEMPOOL, CUmemoryPool, req->pool);
}

CUresult vgx_cuMemPoolCreate(struct vgx_session *s, const struct vgw_req_cuMemPoolCreate *req) {
  if (!s->backend->cuMemPoolCreate)
    return vgx_not_offered(s, "cuMemPoolCreate");
  CUmemPoolProps props = req->poolProps;
  props.win32SecurityAttributes = NULL; /* a pointer of the client's */
  CUmemoryPool pool = NULL;
  if (!vgx_handle_reserve(s, VGW_KIND_MEMPOOL, req->pool))
    return vgx_violation(s, "pool taken");
  CUresult result = s->backend->cuMemPoolCreate(&pool, &props);
  vgx_handle_set(s, VGW_KIND_MEMPOOL, req->pool, result == CUDA_SUCCESS ? pool : NULL);
  return result;
}

CUresult vgx_cuMemPoolSetAttribute(struct vgx_session *s, const struct vgw_req_cuMemPoolSetAttribute *req) {
  if (!s->backend->cuMemPoolSetAttribute)
    return vgx_not_offered(s, "cuMemPoolSetAttribute");
  void *pool;
  CUresult result = vgx_handle(s, VGW_KIND_MEMPOOL, req->pool, &pool);
  if (result != CUDA_SUCCESS)
    return result;
  uint64_t value = req->value; /* an int or a u64; little-endian, so one buffer serves both */
  return s->backend->cuMemPoolSetAttribute(pool, req->attr, &value);
}

CUresult vgx_cuMemPoolGetAttribute(struct vgx_session *s, const struct vgw_req_cuMemPoolGetAttribute *req,
                                   struct vgw_rep_cuMemPoolGetAttribute *rep) {
  if (!s->backend->cuMemPoolGetAttribute)
    return vgx_not_offered(s, "cuMemPoolGetAttribute");
  void *pool;
  CUresult result = vgx_handle(s, VGW_KIND_MEMPOOL, req->pool, &pool);
  if (result != CUDA_SUCCESS)
    return result;
  return s->backend->cuMemPoolGetAttribute(pool, req->attr, &rep->value);
}

CUresult vgx_cuDevicePrimaryCtxRelease_v2(struct vgx_session *s,
                                          const struct vgw_req_cuDevicePrimaryCtxRelease_v2 *req) {
  return context_gone(s, s->backend->cuDevicePrimaryCtxRelease_v2(req->dev));
}

CUresult vgx_cuDevicePrimaryCtxReset_v2(struct vgx_session *s, const struct vgw_req_cuDevicePrimaryCtxReset_v2 *req) {
  return context_gone(s, s->backend->cuDevicePrimaryCtxReset_v2(req->dev));
}
