#include "vgs_managed.h"
#include "vgs_api.h"
#include "vgs_capture.h"
#include "vgs_context.h"
#include "vgs_device.h"
#include "vgs_host_map.h"
#include "vgs_host_mirror.h"
#include "vgs_kernel.h"
#include "vgs_library.h"
#include "vgs_log.h"
#include "vgs_mirror.h"
#include "vgs_objects.h"
#include "vgs_region.h"
#include "vgs_session.h"
#include "vgs_stream.h"
#include "vgw_enums.h"
#include "vgw_pinned.h"
#include <string.h>
#include <sys/mman.h>

enum { PAGE_NBYTES = 4096, ATTACH_GLOBAL = 1, ATTACH_HOST = 2, ATTACH_SINGLE = 4 };
enum { LOCATION_DEVICE = 1, LOCATION_HOST = 2, LOCATION_HOST_NUMA = 3, LOCATION_HOST_NUMA_CURRENT = 4 };
enum { DEVICE_CPU = -1, DEVICE_INVALID = -2 };

/* Memory of both processes that is to be a range: shared, or mirrored where none is shared. */
static CUresult create(uint64_t nbytes, struct vgs_range *range) {
  void *memory;
  uint64_t whole = (nbytes + PAGE_NBYTES - 1) & ~(uint64_t)(PAGE_NBYTES - 1);
  bool shares = vgs_session_shares_memory();
  bool mapped = shares ? !vgs_host_map(whole, &memory) : vgs_host_mirror_map(whole, &memory);
  if (!mapped)
    return vgs_session_error() ? vgs_session_error() : CUDA_ERROR_OUT_OF_MEMORY;
  *range = (struct vgs_range){.base = (uintptr_t)memory,
                              .nbytes = nbytes,
                              .kind = VGS_RANGE_MANAGED,
                              .shared = shares,
                              .preferred = DEVICE_INVALID,
                              .prefetched = DEVICE_INVALID};
  CUresult result = shares ? CUDA_SUCCESS : vgs_host_mirror_add(range);
  if (result)
    munmap(memory, whole);
  return result;
}

static CUresult destroy(const struct vgs_range *range) {
  CUresult result;
  if (!vgs_host_mirror_remove(range->base, &result))
    result = vgs_send_vgpuHostUnmap(range->base);
  munmap((void *)(uintptr_t)range->base, range->nbytes);
  if (range->shared)
    vgs_region_free_pinned(range->base);
  return result;
}

CUresult vgs_cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags) {
  struct vgs_range range;
  if (!dptr || !bytesize || (flags != ATTACH_GLOBAL && flags != ATTACH_HOST))
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = vgs_capture_check_unsafe();
  if (result)
    return result;
  if (bytesize > VGW_PINNED_NBYTES)
    return CUDA_ERROR_OUT_OF_MEMORY;
  if ((result = create(bytesize, &range)))
    return result;
  range.flags = flags;
  if ((result = vgs_range_add(&range))) {
    destroy(&range);
    return result;
  }
  *dptr = range.base;
  return CUDA_SUCCESS;
}

CUresult vgs_managed_free(uint64_t base) {
  struct vgs_range range;
  if (!vgs_range_find(base, &range) || range.base != base || range.kind != VGS_RANGE_MANAGED || !range.context_id ||
      !vgs_range_remove(base, true, &range))
    return CUDA_ERROR_INVALID_VALUE;
  return destroy(&range);
}

/* --- variables --- */

/* The worker places the variable in memory that this process has mapped for it. cudart asks for it before it has a
 * context; like NVIDIA's driver, this creates the first device's primary context. */
static CUresult place(CUdeviceptr *address, size_t *nbytes, uint32_t library, const char *name) {
  uint64_t placed = 0, size = 0;
  struct vgs_range range = {0};
  CUresult result = vgs_send_vgpuLibraryManaged(&placed, &size, 0, library, name);
  if (!result && !placed) {
    if ((result = create(size, &range)))
      return result;
    result = vgs_send_vgpuLibraryManaged(&placed, &size, range.base, library, name);
    if (!result)
      result = vgs_range_add_mapping(&range, vgs_context_primary(vgs_context_entered->device));
    if (!result && !range.shared)
      result = vgs_host_mirror_fetch(); /* its first value */
    if (result)
      destroy(&range);
  }
  /* The driver chose an address in memory that this process does not share: the variable is mirrored. */
  if (!result && !vgs_range_find(placed, &range))
    result = vgs_mirror_add(placed, size, library);
  if (!result) {
    *address = placed;
    *nbytes = size;
  }
  return result;
}

CUresult vgs_cuLibraryGetManaged(CUdeviceptr *dptr, size_t *bytes, CUlibrary handle, const char *name) {
  struct vgs_library *library;
  struct vgs_context *entered = vgs_context_entered;
  CUdeviceptr address = 0;
  size_t nbytes = 0;
  CUcontext primary = NULL;
  if (!name || (!dptr && !bytes))
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = vgs_library_find(handle, &library);
  if (!result && !entered)
    result = vgs_cuDevicePrimaryCtxRetain(&primary, 0); /* never freed: the variable lives as long as the program */
  if (result)
    return result;
  uint32_t before = vgs_thread_context_id;
  if (!entered) {
    vgs_context_entered = vgs_context_find(primary);
    vgs_thread_context_id = vgs_context_entered->wire_id;
  }
  result = place(&address, &nbytes, library->object.id, name);
  vgs_context_entered = entered;
  vgs_thread_context_id = before;
  if (result)
    return result;
  if (dptr)
    *dptr = address;
  if (bytes)
    *bytes = nbytes;
  return CUDA_SUCCESS;
}

/* --- advice: checked and kept; nothing moves --- */

/* A location's device as the older functions name it. INVALID_VALUE, INVALID_DEVICE. */
static CUresult device_of(CUmemLocation location, CUdevice *device) {
  if (location.type == LOCATION_HOST || location.type == LOCATION_HOST_NUMA ||
      location.type == LOCATION_HOST_NUMA_CURRENT)
    *device = DEVICE_CPU;
  else if (location.type == LOCATION_DEVICE && vgs_device(location.id))
    *device = location.id;
  else
    return location.type == LOCATION_DEVICE ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

static CUmemLocation location_of(CUdevice device) {
  return device == DEVICE_CPU ? (CUmemLocation){LOCATION_HOST, 0} : (CUmemLocation){LOCATION_DEVICE, device};
}

static bool find_managed(uint64_t address, uint64_t nbytes, struct vgs_range *range) {
  return nbytes && vgs_range_find(address, range) && range->kind == VGS_RANGE_MANAGED &&
         nbytes <= range->nbytes - (address - range->base);
}

CUresult vgs_cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, int advice, CUmemLocation location) {
  enum { SET_READ_MOSTLY = 1, UNSET_READ_MOSTLY, SET_PREFERRED, UNSET_PREFERRED, SET_ACCESSED_BY, UNSET_ACCESSED_BY };
  struct vgs_range range;
  CUdevice device = DEVICE_INVALID;
  bool located = advice == SET_PREFERRED || advice == SET_ACCESSED_BY || advice == UNSET_ACCESSED_BY;
  if (advice < SET_READ_MOSTLY || advice > UNSET_ACCESSED_BY || !find_managed(devPtr, count, &range))
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = located ? device_of(location, &device) : CUDA_SUCCESS;
  if (result)
    return result;
  uint64_t bit = device < DEVICE_CPU ? 0 : 1ull << (device + 1); /* the CPU's bit is the first */
  switch (advice) {
  case SET_READ_MOSTLY:
  case UNSET_READ_MOSTLY:
    range.read_mostly = advice == SET_READ_MOSTLY;
    break;
  case SET_PREFERRED:
  case UNSET_PREFERRED:
    range.preferred = device;
    break;
  case SET_ACCESSED_BY:
    range.accessed_by |= bit;
    break;
  default:
    range.accessed_by &= ~bit;
  }
  vgs_range_set_advice(&range);
  return CUDA_SUCCESS;
}

CUresult vgs_cuMemAdvise(CUdeviceptr devPtr, size_t count, int advice, CUdevice device) {
  return vgs_cuMemAdvise_v2(devPtr, count, advice, location_of(device));
}

CUresult vgs_cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags,
                                   CUstream hStream) {
  struct vgs_range range;
  struct vgs_stream *on;
  CUdevice device;
  uint32_t stream;
  CUresult result = vgs_stream_id(hStream, &stream, &on);
  if (!result && (flags || !find_managed(devPtr, count, &range)))
    result = CUDA_ERROR_INVALID_VALUE;
  if (!result)
    result = device_of(location, &device);
  if (result)
    return result;
  range.prefetched = device;
  vgs_range_set_advice(&range);
  return CUDA_SUCCESS;
}

CUresult vgs_cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream) {
  return vgs_cuMemPrefetchAsync_v2(devPtr, count, location_of(dstDevice), 0, hStream);
}

CUresult vgs_cuMemRangeGetAttribute(void *data, size_t dataSize, int attribute, CUdeviceptr devPtr, size_t count) {
  enum {
    READ_MOSTLY = 1,
    PREFERRED,
    ACCESSED_BY,
    PREFETCHED,
    PREFERRED_TYPE,
    PREFERRED_ID,
    PREFETCHED_TYPE,
    PREFETCHED_ID
  };
  struct vgs_range range;
  int32_t *values = data;
  size_t room = dataSize / sizeof *values;
  if (!data || !dataSize || dataSize % sizeof *values || attribute < READ_MOSTLY || attribute > PREFETCHED_ID ||
      (attribute != ACCESSED_BY && room != 1) || !find_managed(devPtr, count, &range))
    return CUDA_ERROR_INVALID_VALUE;
  if (attribute == ACCESSED_BY) {
    size_t used = 0;
    for (CUdevice device = DEVICE_CPU; device < VGS_DEVICE_MAX - 1 && used < room; device++)
      if (range.accessed_by >> (device + 1) & 1)
        values[used++] = device;
    while (used < room)
      values[used++] = DEVICE_INVALID;
    return CUDA_SUCCESS;
  }
  CUdevice device = attribute == PREFERRED || attribute == PREFERRED_TYPE || attribute == PREFERRED_ID
                        ? range.preferred
                        : range.prefetched;
  int type = device == DEVICE_INVALID ? 0 : device == DEVICE_CPU ? LOCATION_HOST : LOCATION_DEVICE;
  *values = attribute == READ_MOSTLY                                                               ? range.read_mostly
            : attribute == PREFERRED_TYPE || attribute == PREFETCHED_TYPE                          ? type
            : (attribute == PREFERRED_ID || attribute == PREFETCHED_ID) && type != LOCATION_DEVICE ? 0
                                                                                                   : device;
  return CUDA_SUCCESS;
}

CUresult vgs_cuMemRangeGetAttributes(void **data, size_t *dataSizes, int *attributes, size_t numAttributes,
                                     CUdeviceptr devPtr, size_t count) {
  if (!data || !dataSizes || !attributes || !numAttributes)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; i < numAttributes && !result; i++)
    result = vgs_cuMemRangeGetAttribute(data[i], dataSizes[i], attributes[i], devPtr, count);
  return result;
}

/* Every stream may always use the memory; the attachment is only stored, for the flags. */
CUresult vgs_cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags) {
  struct vgs_range range;
  struct vgs_stream *on;
  uint32_t stream;
  CUresult result = vgs_stream_id(hStream, &stream, &on);
  if (result)
    return result;
  bool known = flags == ATTACH_GLOBAL || flags == ATTACH_HOST || flags == ATTACH_SINGLE;
  if (!known || (flags == ATTACH_SINGLE && !hStream) || !vgs_range_find(dptr, &range) ||
      range.kind != VGS_RANGE_MANAGED || range.base != dptr || (length && length != range.nbytes))
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}
