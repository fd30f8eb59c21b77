/* Physical memory as a descriptor. The client holds a token, as for cuIpc; the driver's own descriptor goes to vgpud
 * and from there to the workers that import it. Each allocation is exported once. */
#include "vgx_share.h"

#include <string.h>
#include <unistd.h>

#include "vgx_custom.h"
#include "vgx_ipc.h"

CUresult vgx_cuMemExportToShareableHandle(struct vgx_session *s, const struct vgw_req_cuMemExportToShareableHandle *req,
                                          CUmemGenericAllocationHandle handle,
                                          struct vgw_rep_cuMemExportToShareableHandle *rep) {
  if (!s->backend->share_export || !vgx_ipc_is_there())
    return vgx_not_offered(s, "cuMemExportToShareableHandle");
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&s->ipc_lock);
  uint32_t i = 0;
  while (i < s->export_count && s->exports[i].allocation != req->handle)
    i++;
  if (i == s->export_count) {
    struct vgx_ipc_object object = {.fd = -1};
    result = s->backend->share_export(&object, handle);
    if (result == CUDA_SUCCESS)
      result = vgx_ipc_export_locked(s, VGX_IPC_ALLOCATION, &object, 0, (struct vgx_export){.allocation = req->handle});
  }
  if (result == CUDA_SUCCESS)
    memcpy(rep->token.reserved, s->exports[i].token, sizeof rep->token.reserved);
  pthread_mutex_unlock(&s->ipc_lock);
  return result;
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

void vgx_share_released(struct vgx_session *s, uint32_t allocation) {
  pthread_mutex_lock(&s->ipc_lock);
  for (uint32_t i = s->export_count; i-- > 0;)
    if (s->exports[i].allocation == allocation)
      vgx_ipc_remove_locked(s, i);
  pthread_mutex_unlock(&s->ipc_lock);
}
