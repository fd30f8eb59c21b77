/* Primary contexts. The record of a release names only the device; the release invalidates the id that the context got
 * when it was retained. */
#include "vgx_custom.h"
#include "vgx_device.h"
#include "vgx_ipc.h"
#include "vgx_session.h"

CUresult vgx_cuDevicePrimaryCtxRetain(struct vgx_session *s, const struct vgw_req_cuDevicePrimaryCtxRetain *req,
                                      CUcontext *pctx) {
  CUresult result = vgx_device_enter(s, req->dev);
  if (result == CUDA_SUCCESS)
    result = s->backend->cuDevicePrimaryCtxRetain(pctx, req->dev);
  if (result != CUDA_SUCCESS)
    return result;
  pthread_mutex_lock(&s->table_lock);
  bool retained = s->primaries[req->dev];
  if (!retained)
    s->primaries[req->dev] = req->pctx;
  pthread_mutex_unlock(&s->table_lock);
  if (!retained)
    return CUDA_SUCCESS;
  s->backend->cuDevicePrimaryCtxRelease_v2(req->dev); /* the client counts its retains and sends only one */
  return CUDA_ERROR_INVALID_VALUE;
}

static CUresult end(struct vgx_session *s, CUdevice device, CUresult (*call)(CUdevice)) {
  void *context;
  pthread_mutex_lock(&s->table_lock);
  uint32_t id = device >= 0 && device < VGX_DEVICES_MAX ? s->primaries[device] : 0;
  pthread_mutex_unlock(&s->table_lock);
  CUresult result = id ? vgx_handle_end(s, VGW_KIND_CONTEXT, id, &context) : CUDA_ERROR_INVALID_CONTEXT;
  if (result != CUDA_SUCCESS)
    return result;
  pthread_mutex_lock(&s->table_lock);
  s->primaries[device] = 0;
  pthread_mutex_unlock(&s->table_lock);
  result = call(device);
  vgx_handle_ended(s, VGW_KIND_CONTEXT, id, true); /* also on failure: the client has released it */
  if (result == CUDA_SUCCESS)
    vgx_ipc_context_destroyed(s);
  return result;
}

CUresult vgx_cuDevicePrimaryCtxRelease_v2(struct vgx_session *s,
                                          const struct vgw_req_cuDevicePrimaryCtxRelease_v2 *req) {
  return end(s, req->dev, s->backend->cuDevicePrimaryCtxRelease_v2);
}

CUresult vgx_cuDevicePrimaryCtxReset_v2(struct vgx_session *s, const struct vgw_req_cuDevicePrimaryCtxReset_v2 *req) {
  return end(s, req->dev, s->backend->cuDevicePrimaryCtxReset_v2);
}
