/* Physical memory as a descriptor. What the program gets is a sealed file of a few bytes that names the memory to
 * vgpud, so that it can be passed between processes like the driver's own, whatever channel each of them uses. A forged
 * token names nothing. */
#define _GNU_SOURCE
#include "vgs_share.h"
#include "vgs_api.h"
#include "vgs_device.h"
#include "vgs_log.h"
#include "vgs_memfd.h"
#include "vgs_objects.h"
#include "vgs_virtual.h"
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef F_SEAL_WRITE
#define F_ADD_SEALS 1033
#define F_GET_SEALS 1034
#define F_SEAL_SEAL 1
#define F_SEAL_WRITE 8
#endif

enum { HANDLE_TYPES_MAX = 8 }; /* CUmemAllocationHandleType: up to fabric */

struct content {
  char kind[16];
  char token[VGS_SHARE_TOKEN_NBYTES];
};
static const char ALLOCATION[16] = "vgpu allocation";

CUresult vgs_share_check_type(int type) {
  if (type == VGS_SHARE_DESCRIPTOR)
    return CUDA_SUCCESS;
  if (type <= 0 || type > HANDLE_TYPES_MAX || type & (type - 1))
    return CUDA_ERROR_INVALID_VALUE;
  vgs_log(VGS_LOG_ERROR, "memory is shared by file descriptors alone, not by %s handles: CUDA_ERROR_NOT_SUPPORTED",
          type == HANDLE_TYPES_MAX ? "fabric" : "Windows");
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult vgs_share_write(const char kind[16], const void *token, int *fd) {
  struct content content;
  memcpy(content.kind, kind, sizeof content.kind);
  memcpy(content.token, token, sizeof content.token);
  int made = vgs_memfd_create("vgpu-allocation", sizeof content);
  if (made < 0)
    return CUDA_ERROR_OUT_OF_MEMORY;
  if (pwrite(made, &content, sizeof content, 0) != sizeof content ||
      fcntl(made, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL)) {
    close(made);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *fd = made;
  return CUDA_SUCCESS;
}

bool vgs_share_read(int fd, const char kind[16], void *token) {
  struct content content;
  struct stat st;
  int seals = fcntl(fd, F_GET_SEALS);
  bool valid = seals >= 0 && seals & F_SEAL_WRITE && !fstat(fd, &st) && st.st_size == sizeof content &&
               pread(fd, &content, sizeof content, 0) == sizeof content && !memcmp(content.kind, kind, 16);
  if (valid)
    memcpy(token, content.token, sizeof content.token);
  return valid;
}

CUresult vgs_cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle, int handleType,
                                          unsigned long long flags) {
  const struct vgs_allocation *allocation = vgs_object_find(VGW_KIND_ALLOCATION, (void *)(uintptr_t)handle);
  CUipcMemHandle token;
  if (!shareableHandle || !allocation || !vgs_allocation_has_handle(allocation) || flags)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = vgs_share_check_type(handleType);
  if (!result && !(allocation->prop.requestedHandleTypes & handleType))
    result = CUDA_ERROR_INVALID_VALUE;
  if (!result)
    result = vgs_send_cuMemExportToShareableHandle(&token, allocation->object.id);
  return result ? result : vgs_share_write(ALLOCATION, &token, shareableHandle);
}

CUresult vgs_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle, int shHandleType) {
  CUipcMemHandle token;
  CUresult result = vgs_share_check_type(shHandleType);
  if (!handle)
    return CUDA_ERROR_INVALID_VALUE;
  if (result)
    return result;
  if (!vgs_share_read((int)(intptr_t)osHandle, ALLOCATION, &token))
    return CUDA_ERROR_INVALID_VALUE;
  struct vgs_allocation *made = vgs_object_create(VGW_KIND_ALLOCATION, 0);
  if (!made)
    return CUDA_ERROR_OUT_OF_MEMORY;
  result = vgs_send_cuMemImportFromShareableHandle(made->object.id, &made->prop, &token);
  if (!result) {
    CUdevice device = vgs_device_of_wire(made->prop.location.id);
    made->prop.location.id = device;
    made->handles = 1;
    if (device < 0) { /* CUDA_VISIBLE_DEVICES hides it */
      vgs_send_cuMemRelease(made->object.id);
      result = CUDA_ERROR_INVALID_DEVICE;
    }
  }
  if (result)
    vgs_object_destroy(made);
  else
    *handle = (uintptr_t)vgs_object_handle(made);
  return result;
}
