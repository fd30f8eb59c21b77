/* Virtual memory management. A handle of physical memory is an id like any other; its value fits the API's 64-bit
 * integer. Handles and mappings are counted here: the worker releases the memory when neither is left, so that a
 * mapping's handle can be found as long as the mapping exists. */
#include "vgs_virtual.h"
#include "vgs_api.h"
#include "vgs_context.h"
#include "vgs_device.h"
#include "vgs_objects.h"
#include "vgs_range.h"
#include "vgw_enums.h"
#include <pthread.h>
#include <string.h>

enum {
  TYPE_PINNED = 1,
  LOCATION_DEVICE = 1,
  HANDLE_POSIX_FILE_DESCRIPTOR = 1,
};

static pthread_mutex_t count_lock = PTHREAD_MUTEX_INITIALIZER;

/* Count handles or mappings up or down. When the last of them is gone, the memory is released. INVALID_VALUE: there is
 * no such allocation, or it has no handle left. */
static CUresult count(CUmemGenericAllocationHandle handle, int handles, int mappings) {
  struct vgs_allocation *allocation = vgs_object_find(VGW_KIND_ALLOCATION, (void *)(uintptr_t)handle);
  uint32_t last = 0;
  pthread_mutex_lock(&count_lock);
  bool known = allocation && vgs_object_find(VGW_KIND_ALLOCATION, (void *)(uintptr_t)handle) == allocation &&
               (handles >= 0 || allocation->handles) && (mappings >= 0 || allocation->mappings);
  if (known) {
    allocation->handles += (uint32_t)handles;
    allocation->mappings += (uint32_t)mappings;
    if (!allocation->handles && !allocation->mappings) {
      last = allocation->object.id;
      vgs_object_destroy(allocation);
    }
  }
  pthread_mutex_unlock(&count_lock);
  if (!known)
    return CUDA_ERROR_INVALID_VALUE;
  return last ? vgs_send_cuMemRelease(last) : CUDA_SUCCESS;
}

/* Check that the properties are supported: device memory, of which a descriptor may be requested. This is allowed even
 * where nothing can be shared: NCCL and PyTorch always request one. */
CUresult vgs_allocation_check(const CUmemAllocationProp *prop) {
  if (!prop || prop->type != TYPE_PINNED)
    return CUDA_ERROR_INVALID_VALUE;
  if (prop->location.type != LOCATION_DEVICE || prop->requestedHandleTypes & ~HANDLE_POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_NOT_SUPPORTED;
  const struct vgs_device *device = vgs_device(prop->location.id);
  if (!device)
    return CUDA_ERROR_INVALID_DEVICE;
  return device->attributes[CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED] == 1 ? CUDA_SUCCESS
                                                                                          : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult vgs_cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop, int option) {
  CUmemAllocationProp asked;
  if (!granularity || !prop || option < 0 || option > 1)
    return CUDA_ERROR_INVALID_VALUE;
  asked = *prop;
  asked.requestedHandleTypes = 0;             /* sharing does not change the granularity */
  if (asked.location.type != LOCATION_DEVICE) /* nor do other locations: an H200 answers 2 MiB for host memory, too */
    asked.location.type = LOCATION_DEVICE, asked.location.id = 0;
  CUresult result = vgs_allocation_check(&asked);
  if (result)
    return result;
  const struct vgs_device *device = vgs_device(asked.location.id);
  *granularity = option ? device->granularity_recommended : device->granularity_minimum;
  return *granularity ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult vgs_allocation_release(CUmemGenericAllocationHandle handle) { return count(handle, -1, 0); }

bool vgs_allocation_has_handle(const struct vgs_allocation *allocation) {
  pthread_mutex_lock(&count_lock);
  bool held = allocation->handles;
  pthread_mutex_unlock(&count_lock);
  return held;
}

CUresult vgs_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr) {
  struct vgs_range range;
  if (!handle || !vgs_range_find((uintptr_t)addr, &range) || !range.allocation)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = count(range.allocation, 1, 0);
  if (!result)
    *handle = range.allocation;
  return result;
}

CUresult vgs_mapping_add(const struct vgs_allocation *allocation, CUdeviceptr ptr, size_t size) {
  CUmemGenericAllocationHandle handle = (uintptr_t)vgs_object_handle(allocation);
  struct vgs_range range = {.base = ptr, .nbytes = size, .kind = VGS_RANGE_DEVICE, .allocation = handle};
  CUresult result = count(handle, 0, 1);
  if (!result && (result = vgs_range_add_mapping(&range, vgs_context_primary(allocation->prop.location.id))))
    count(handle, 0, -1);
  if (result)
    vgs_send_cuMemUnmap(ptr, size);
  return result;
}

void vgs_mappings_remove(CUdeviceptr ptr, size_t size) {
  for (CUdeviceptr at = ptr; at - ptr < size;) { /* one call may undo several maps */
    struct vgs_range range;
    if (!vgs_range_find(at, &range) || !vgs_range_remove(range.base, false, &range))
      break;
    if (range.allocation)
      count(range.allocation, 0, -1);
    at = range.base + range.nbytes;
  }
}

bool vgs_access_is_foreign(const CUmemAccessDesc *desc, size_t count) {
  bool found = false;
  for (size_t i = 0; i < count; i++)
    found |= desc[i].location.type != LOCATION_DEVICE;
  return found;
}

CUresult vgs_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle) {
  struct vgs_allocation *allocation = vgs_object_find(VGW_KIND_ALLOCATION, (void *)(uintptr_t)handle);
  if (!prop || !allocation || !vgs_allocation_has_handle(allocation))
    return CUDA_ERROR_INVALID_VALUE;
  *prop = allocation->prop;
  return CUDA_SUCCESS;
}
