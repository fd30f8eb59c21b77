/* Device resources: how many multiprocessors there are. That is known here; the rest of the driver's description is
 * fetched when the resource is to be divided. */
#include "vgs_resource.h"
#include "vgs_api.h"
#include "vgs_device.h"
#include "vgs_enter.h"
#include "vgw_enums.h"
#include <stdlib.h>
#include <string.h>

enum { RESOURCE_SM = 1, RESOURCE_WORKQUEUE = 10000 };

/* Stored in the driver's own part of a resource: the device that it belongs to. */
struct mark {
  char text[12];
  CUdevice device;
};
static const char WHOLE[12] = "vgpu device";

static CUresult describe(CUdevice ordinal, CUdevResource *resource, int type) {
  const struct vgs_device *device = vgs_device(ordinal);
  struct mark mark = {.device = ordinal};
  if (type > RESOURCE_SM && type <= RESOURCE_WORKQUEUE)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (!resource || type != RESOURCE_SM)
    return CUDA_ERROR_INVALID_VALUE;
  /* Values by architecture, from the manual of green contexts. */
  int major = device->attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR];
  unsigned unit = major >= 9 ? 8 : major >= 7 ? 2 : 1;
  *resource = (CUdevResource){.type = type};
  resource->sm.smCount = (unsigned)device->attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];
  resource->sm.smCoscheduledAlignment = unit;
  resource->sm.minSmPartitionSize = major == 8 ? 4 : unit;
  memcpy(mark.text, WHOLE, sizeof WHOLE);
  memcpy(resource->pad, &mark, sizeof mark);
  return CUDA_SUCCESS;
}

CUresult vgs_cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, int type) {
  return vgs_device(device) ? describe(device, resource, type) : CUDA_ERROR_INVALID_DEVICE;
}

CUresult vgs_cuCtxGetDevResource(CUcontext hCtx, CUdevResource *resource, int type) {
  struct vgs_context *context = vgs_context_find(hCtx);
  if (!context)
    return CUDA_ERROR_INVALID_CONTEXT;
  return context->green ? vgs_cuGreenCtxGetDevResource(context->green, resource, type)
                        : describe(context->device, resource, type);
}

CUresult vgs_resource_resolve(const CUdevResource *resource, CUdevResource *known) {
  struct mark mark;
  if (!resource)
    return CUDA_ERROR_INVALID_VALUE;
  memcpy(&mark, resource->pad, sizeof mark);
  if (!memcmp(mark.text, WHOLE, sizeof WHOLE) && vgs_device(mark.device))
    return vgs_send_vgpuDeviceResource(known, vgs_device_wire(mark.device), resource->type);
  *known = *resource;
  return CUDA_SUCCESS;
}

CUresult vgs_resources_resolve(const CUdevResource *resources, unsigned count, CUdevResource **known) {
  CUdevResource *all = resources ? malloc(count * sizeof *all) : NULL;
  CUresult result = all ? CUDA_SUCCESS : resources ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count && !result; i++)
    result = vgs_resource_resolve(&resources[i], &all[i]);
  *known = all;
  return result;
}
