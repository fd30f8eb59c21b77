/* IPC of the real driver: its handle travels without a descriptor, since the driver's kernel half resolves it; physical
 * memory travels as a descriptor of the driver. (Events do not use the driver's IPC: vgx_ipc_event.c.) */
#include <dlfcn.h>
#include <string.h>

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

/* --- physical memory --- */

enum { POSIX_FILE_DESCRIPTOR = 1 }; /* CUmemAllocationHandleType */

static CUresult (*mem_export)(void *, CUmemGenericAllocationHandle, int, unsigned long long);
static CUresult (*mem_import)(CUmemGenericAllocationHandle *, void *, int);
static CUresult (*mem_properties)(CUmemAllocationProp *, CUmemGenericAllocationHandle);
static CUresult (*mem_release)(CUmemGenericAllocationHandle);

static CUresult share_export(struct vgx_ipc_object *object, CUmemGenericAllocationHandle handle) {
  int fd = -1;
  CUresult result = mem_export(&fd, handle, POSIX_FILE_DESCRIPTOR, 0);
  *object = (struct vgx_ipc_object){.fd = result == CUDA_SUCCESS ? fd : -1};
  return result;
}

static CUresult share_open(CUmemGenericAllocationHandle *handle, CUmemAllocationProp *prop,
                           const struct vgx_ipc_object *object) {
  CUmemGenericAllocationHandle made = 0;
  CUresult result = mem_import(&made, (void *)(intptr_t)object->fd, POSIX_FILE_DESCRIPTOR);
  if (result != CUDA_SUCCESS)
    return result;
  result = mem_properties(prop, made);
  if (result == CUDA_SUCCESS)
    *handle = made;
  else
    mem_release(made);
  return result;
}

/* --- pools --- */

static CUresult (*get_pool)(void *, CUmemoryPool, int, unsigned long long);
static CUresult (*make_pool)(CUmemoryPool *, void *, int, unsigned long long);
static CUresult (*get_pointer)(CUmemPoolPtrExportData *, CUdeviceptr);
static CUresult (*open_pointer)(CUdeviceptr *, CUmemoryPool, CUmemPoolPtrExportData *);

static CUresult pool_export(struct vgx_ipc_object *object, CUmemoryPool pool) {
  int fd = -1;
  CUresult result = get_pool(&fd, pool, POSIX_FILE_DESCRIPTOR, 0);
  *object = (struct vgx_ipc_object){.fd = result == CUDA_SUCCESS ? fd : -1};
  return result;
}

static CUresult pool_open(CUmemoryPool *pool, const struct vgx_ipc_object *object) {
  return make_pool(pool, (void *)(intptr_t)object->fd, POSIX_FILE_DESCRIPTOR, 0);
}

_Static_assert(sizeof(CUmemPoolPtrExportData) == sizeof(CUipcMemHandle), "it travels as a handle");

static CUresult pointer_export(struct vgx_ipc_object *object, CUdeviceptr address) {
  CUmemPoolPtrExportData data;
  CUresult result = get_pointer(&data, address);
  *object = (struct vgx_ipc_object){.fd = -1};
  if (result == CUDA_SUCCESS)
    memcpy(&object->handle, &data, sizeof data);
  return result;
}

static CUresult pointer_open(CUdeviceptr *address, CUmemoryPool pool, const struct vgx_ipc_object *object) {
  CUmemPoolPtrExportData data;
  memcpy(&data, &object->handle, sizeof data);
  return open_pointer(address, pool, &data);
}

static void resolve_pools(void *library, struct vgx_backend *backend) {
  get_pool = (__typeof__(get_pool))dlsym(library, "cuMemPoolExportToShareableHandle");
  make_pool = (__typeof__(make_pool))dlsym(library, "cuMemPoolImportFromShareableHandle");
  get_pointer = (__typeof__(get_pointer))dlsym(library, "cuMemPoolExportPointer");
  open_pointer = (__typeof__(open_pointer))dlsym(library, "cuMemPoolImportPointer");
  if (get_pool && make_pool && get_pointer && open_pointer) {
    backend->pool_export = pool_export;
    backend->pool_open = pool_open;
    backend->pointer_export = pointer_export;
    backend->pointer_open = pointer_open;
  }
}

static void resolve_sharing(void *library, struct vgx_backend *backend) {
  mem_export = (__typeof__(mem_export))dlsym(library, "cuMemExportToShareableHandle");
  mem_import = (__typeof__(mem_import))dlsym(library, "cuMemImportFromShareableHandle");
  mem_properties = (__typeof__(mem_properties))dlsym(library, "cuMemGetAllocationPropertiesFromHandle");
  mem_release = (__typeof__(mem_release))dlsym(library, "cuMemRelease");
  if (mem_export && mem_import && mem_properties && mem_release) {
    backend->share_export = share_export;
    backend->share_open = share_open;
  }
}

void vgx_cuda_ipc_resolve(void *library, struct vgx_backend *backend) {
  get_handle = (__typeof__(get_handle))dlsym(library, "cuIpcGetMemHandle");
  open_handle = (__typeof__(open_handle))dlsym(library, "cuIpcOpenMemHandle_v2");
  if (get_handle && open_handle && backend->cuIpcCloseMemHandle) {
    backend->ipc_export = export;
    backend->ipc_open = open;
  }
  resolve_sharing(library, backend);
  resolve_pools(library, backend);
}
