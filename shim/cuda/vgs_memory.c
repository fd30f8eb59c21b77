/* Allocations, and queries about an address. */
#include "vgs_api.h"
#include "vgs_copy.h"
#include "vgs_enter.h"
#include "vgs_ipc.h"
#include "vgs_range.h"
#include "vgs_session.h"
#include "vgw_enums.h"
#include <string.h>

CUresult vgs_cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr) {
  struct vgs_range range;
  if (!vgs_range_find(dptr, &range) || range.kind == VGS_RANGE_REGISTERED)
    return CUDA_ERROR_NOT_FOUND;
  if (pbase)
    *pbase = range.base;
  if (psize)
    *psize = range.nbytes;
  return CUDA_SUCCESS;
}

/* --- pointer attributes --- */

/* One attribute. `value` holds 8 bytes; *nbytes is how many of them count. INVALID_VALUE for an unknown address, or an
 * attribute that makes no sense for it. */
static CUresult attribute_of(const struct vgs_range *range, int attribute, CUdeviceptr address, uint64_t *value,
                             unsigned *nbytes) {
  bool managed = range && range->kind == VGS_RANGE_MANAGED;
  bool host = range && vgs_range_is_host(range);
  *value = 0;
  *nbytes = 4;
  if (attribute == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE)
    *value = range && vgs_ipc_is_capable(range);
  if (attribute == CU_POINTER_ATTRIBUTE_IS_MANAGED)
    *value = managed;
  if (attribute == CU_POINTER_ATTRIBUTE_IS_MANAGED || attribute == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE)
    return range ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  if (!range)
    return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
  case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    *value = host && !managed ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    return CUDA_SUCCESS;
  case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    *value = (uint64_t)range->device;
    return CUDA_SUCCESS;
  case CU_POINTER_ATTRIBUTE_MAPPED:
    *value = !host || vgs_range_device_address(range, address);
    return CUDA_SUCCESS;
  case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    *value = range->sync_memops;
    return CUDA_SUCCESS;
  case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
  case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE: /* whether a card has the engine was never observed */
    return CUDA_SUCCESS;
  case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    *value = 3; /* read and write */
    return CUDA_SUCCESS;
  }
  *nbytes = 8;
  switch (attribute) {
  case CU_POINTER_ATTRIBUTE_CONTEXT:
    *value = (uintptr_t)range->context;
    return CUDA_SUCCESS;
  case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    *value = host ? vgs_range_device_address(range, address) : address;
    return *value ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    *value = address;
    return host ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    *value = range->buffer_id;
    return CUDA_SUCCESS;
  case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: /* physical memory may be mapped at several addresses */
    *value = range->allocation ? range->allocation | 1ull << 63 : range->buffer_id;
    return CUDA_SUCCESS;
  case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    *value = range->base;
    return CUDA_SUCCESS;
  case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    *value = range->nbytes;
    return CUDA_SUCCESS;
  case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
  case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult vgs_cuPointerGetAttribute(void *data, int attribute, CUdeviceptr ptr) {
  struct vgs_range range;
  uint64_t value;
  unsigned nbytes;
  if (!data || attribute < 1 || attribute > CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE)
    return CUDA_ERROR_INVALID_VALUE;
  bool known = vgs_range_find(ptr, &range);
  CUresult result = attribute_of(known ? &range : NULL, attribute, ptr, &value, &nbytes);
  if (!result)
    memcpy(data, &value, nbytes);
  return result;
}

/* This form never fails for an address: attributes that do not apply are 0 (oracle; cudart calls it for any pointer),
 * and the ordinal of no device is -2. */
CUresult vgs_cuPointerGetAttributes(unsigned int numAttributes, int *attributes, void **data, CUdeviceptr ptr) {
  struct vgs_range range;
  if (!numAttributes || !attributes || !data)
    return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < numAttributes; i++)
    if (!data[i] || attributes[i] < 1 || attributes[i] > CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE)
      return CUDA_ERROR_INVALID_VALUE;
  bool known = vgs_range_find(ptr, &range);
  for (unsigned i = 0; i < numAttributes; i++) {
    uint64_t value;
    unsigned nbytes;
    if (attribute_of(known ? &range : NULL, attributes[i], ptr, &value, &nbytes)) {
      value = attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ? (uint64_t)(uint32_t)-2 : 0;
      nbytes = attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE || attributes[i] == CU_POINTER_ATTRIBUTE_IS_MANAGED ||
                       attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ||
                       attributes[i] == CU_POINTER_ATTRIBUTE_MAPPED ||
                       attributes[i] == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE ||
                       attributes[i] == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ||
                       attributes[i] == CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE ||
                       attributes[i] == CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE ||
                       attributes[i] == CU_POINTER_ATTRIBUTE_ACCESS_FLAGS
                   ? 4
                   : 8;
    }
    memcpy(data[i], &value, nbytes);
  }
  return CUDA_SUCCESS;
}

CUresult vgs_cuPointerSetAttribute(const void *value, int attribute, CUdeviceptr ptr) {
  if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
    return CUDA_ERROR_INVALID_VALUE;
  struct vgs_range range;
  if (!vgs_range_find(ptr, &range) || !vgs_range_set_sync_memops(ptr, *(const unsigned *)value))
    return CUDA_ERROR_INVALID_VALUE;
  /* Operations that have returned, and may be pending, must be complete, too. */
  struct vgs_context *context = vgs_context_find(range.context);
  return context && *(const unsigned *)value ? vgs_synchronize_context(context) : CUDA_SUCCESS;
}
