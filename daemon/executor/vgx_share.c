/* Physical memory and pools as descriptors, and the allocations of such pools. The client holds a token, as for cuIpc;
 * the driver's own descriptor goes to vgpud and from there to the workers that import it. Each object is exported once.
 */
#include "vgx_share.h"

#include <unistd.h>

#include "vgw_enums.h"
#include "vgx_custom.h"
#include "vgx_ipc.h"

/* --- physical memory --- */

CUresult vgx_cuMemExportToShareableHandle(struct vgx_session *s, const struct vgw_req_cuMemExportToShareableHandle *req,
                                          CUmemGenericAllocationHandle handle,
                                          struct vgw_rep_cuMemExportToShareableHandle *rep) {
  if (!s->backend->share_export || !vgx_ipc_is_there())
    return vgx_not_offered(s, "cuMemExportToShareableHandle");
  struct vgx_ipc_object object = {.fd = -1};
  if (vgx_ipc_export_begin(s, VGX_IPC_ALLOCATION, req->handle, &rep->token))
    return CUDA_SUCCESS;
  CUresult result = s->backend->share_export(&object, handle);
  return vgx_ipc_export_end(s, VGX_IPC_ALLOCATION, req->handle, result, &object, 0, &rep->token);
}

CUresult vgx_cuMemImportFromShareableHandle(struct vgx_session *s,
                                            const struct vgw_req_cuMemImportFromShareableHandle *req,
                                            CUmemGenericAllocationHandle *handle,
                                            struct vgw_rep_cuMemImportFromShareableHandle *rep) {
  struct vgx_ipc_object object;
  uint64_t nbytes;
  if (!s->backend->share_open || !vgx_ipc_is_there())
    return vgx_not_offered(s, "cuMemImportFromShareableHandle");
  CUresult result = vgx_ipc_find(VGX_IPC_ALLOCATION, req->token.reserved, &object, &nbytes);
  if (result != CUDA_SUCCESS)
    return result;
  result = s->backend->share_open(handle, &rep->prop, &object);
  if (object.fd >= 0)
    close(object.fd);
  return result;
}

/* --- pools --- */

CUresult vgx_cuMemPoolExportToShareableHandle(struct vgx_session *s,
                                              const struct vgw_req_cuMemPoolExportToShareableHandle *req,
                                              CUmemoryPool pool, struct vgw_rep_cuMemPoolExportToShareableHandle *rep) {
  if (!s->backend->pool_export || !vgx_ipc_is_there())
    return vgx_not_offered(s, "cuMemPoolExportToShareableHandle");
  struct vgx_ipc_object object = {.fd = -1};
  if (vgx_ipc_export_begin(s, VGX_IPC_POOL, req->pool, &rep->token))
    return CUDA_SUCCESS;
  CUresult result = s->backend->pool_export(&object, pool);
  return vgx_ipc_export_end(s, VGX_IPC_POOL, req->pool, result, &object, 0, &rep->token);
}

CUresult vgx_cuMemPoolImportFromShareableHandle(struct vgx_session *s,
                                                const struct vgw_req_cuMemPoolImportFromShareableHandle *req,
                                                CUmemoryPool *pool) {
  struct vgx_ipc_object object;
  uint64_t nbytes;
  if (!s->backend->pool_open || !vgx_ipc_is_there())
    return vgx_not_offered(s, "cuMemPoolImportFromShareableHandle");
  CUresult result = vgx_ipc_find(VGX_IPC_POOL, (const char *)req->token.reserved, &object, &nbytes);
  if (result != CUDA_SUCCESS)
    return result;
  result = s->backend->pool_open(pool, &object);
  if (object.fd >= 0)
    close(object.fd);
  return result;
}

CUresult vgx_cuMemPoolExportPointer(struct vgx_session *s, const struct vgw_req_cuMemPoolExportPointer *req,
                                    struct vgw_rep_cuMemPoolExportPointer *rep) {
  const struct vgx_backend *b = s->backend;
  uint64_t base = 0, nbytes = 0;
  if (!b->pointer_export || !b->cuPointerGetAttribute || !vgx_ipc_is_there())
    return vgx_not_offered(s, "cuMemPoolExportPointer");
  if (b->cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, req->ptr) != CUDA_SUCCESS ||
      b->cuPointerGetAttribute(&nbytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, base) != CUDA_SUCCESS || base != req->ptr)
    return CUDA_ERROR_INVALID_VALUE;
  struct vgx_ipc_object object = {.fd = -1};
  if (vgx_ipc_export_begin(s, VGX_IPC_POINTER, base, &rep->shareData_out))
    return CUDA_SUCCESS;
  CUresult result = b->pointer_export(&object, base);
  return vgx_ipc_export_end(s, VGX_IPC_POINTER, base, result, &object, nbytes, &rep->shareData_out);
}

CUresult vgx_cuMemPoolImportPointer(struct vgx_session *s, const struct vgw_req_cuMemPoolImportPointer *req,
                                    CUmemoryPool pool, struct vgw_rep_cuMemPoolImportPointer *rep) {
  struct vgx_ipc_object object;
  CUdeviceptr address = 0;
  if (!s->backend->pointer_open || !vgx_ipc_is_there())
    return vgx_not_offered(s, "cuMemPoolImportPointer");
  CUresult result = vgx_ipc_find(VGX_IPC_POINTER, (const char *)req->shareData.reserved, &object, &rep->nbytes);
  if (result != CUDA_SUCCESS)
    return result;
  result = s->backend->pointer_open(&address, pool, &object);
  if (object.fd >= 0)
    close(object.fd);
  if (result == CUDA_SUCCESS)
    rep->ptr_out = address;
  return result;
}

void vgx_share_released(struct vgx_session *s, enum vgx_ipc_what what, uint32_t id) {
  pthread_mutex_lock(&s->export_lock);
  for (uint32_t i = s->export_count; i-- > 0;)
    if (s->exports[i].what == what && s->exports[i].key == id)
      vgx_ipc_remove_locked(s, i);
  pthread_mutex_unlock(&s->export_lock);
}
