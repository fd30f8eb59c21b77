/* Device resources: how many multiprocessors there are. They cannot be divided here: green contexts are not offered. */
#include "vgs_api.h"
#include "vgs_device.h"
#include "vgs_enter.h"
#include "vgw_enums.h"

enum { RESOURCE_SM = 1, RESOURCE_WORKQUEUE = 10000, PARTITION_BEFORE_HOPPER = 2, PARTITION = 8 };

static CUresult describe(const struct vgs_device *device, CUdevResource *resource, int type) {
  if (type > RESOURCE_SM && type <= RESOURCE_WORKQUEUE)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (!resource || type != RESOURCE_SM)
    return CUDA_ERROR_INVALID_VALUE;
  /* Values by architecture, from the manual of green contexts. */
  unsigned least =
      device->attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] >= 9 ? PARTITION : PARTITION_BEFORE_HOPPER;
  *resource = (CUdevResource){.type = type};
  resource->sm.smCount = (unsigned)device->attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];
  resource->sm.minSmPartitionSize = resource->sm.smCoscheduledAlignment = least;
  return CUDA_SUCCESS;
}

CUresult vgs_cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, int type) {
  const struct vgs_device *found = vgs_device(device);
  return found ? describe(found, resource, type) : CUDA_ERROR_INVALID_DEVICE;
}

CUresult vgs_cuCtxGetDevResource(CUcontext hCtx, CUdevResource *resource, int type) {
  struct vgs_context *context = vgs_context_find(hCtx);
  return context ? describe(vgs_device(context->device), resource, type) : CUDA_ERROR_INVALID_CONTEXT;
}
