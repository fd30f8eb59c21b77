/* IPC of the real driver: its handle needs nothing beside it, since the driver's kernel half resolves it. (Events are
 * not the driver's: vgx_ipc_event.c.) */
#include <dlfcn.h>

#include "vgx_cuda_ipc.h"

static CUresult (*get_handle)(CUipcMemHandle *, CUdeviceptr);
static CUresult (*open_handle)(CUdeviceptr *, CUipcMemHandle, unsigned int);

static CUresult export(struct vgx_ipc_object *object, CUdeviceptr base) {
  object->fd = -1;
  return get_handle(&object->handle, base);
}

static CUresult open(CUdeviceptr *base, const struct vgx_ipc_object *object, unsigned int flags) {
  return open_handle(base, object->handle, flags);
}

void vgx_cuda_ipc_resolve(void *library, struct vgx_backend *backend) {
  get_handle = (__typeof__(get_handle))dlsym(library, "cuIpcGetMemHandle");
  open_handle = (__typeof__(open_handle))dlsym(library, "cuIpcOpenMemHandle_v2");
  if (get_handle && open_handle && backend->cuIpcCloseMemHandle) {
    backend->ipc_export = export;
    backend->ipc_open = open;
  }
}
