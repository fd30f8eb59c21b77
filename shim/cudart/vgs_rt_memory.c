/* Allocations, and queries about pointers. An allocation of 0 bytes is NULL, and freeing NULL is not an error. */
#include "vgs_rt.h"
#include "vgs_rt_api.h"
#include <string.h>

#define ADDRESS(pointer) ((CUdeviceptr)(uintptr_t)(pointer))
#define POINTER(address) ((void *)(uintptr_t)(address))

int vgs_cudaMalloc(const struct vgs_rt_driver *cu, void **devPtr, size_t size) {
  if (!devPtr)
    return CUDA_ERROR_INVALID_VALUE;
  if (size)
    return cu->cuMemAlloc_v2((CUdeviceptr *)devPtr, size);
  *devPtr = NULL;
  return CUDA_SUCCESS;
}

static int alloc_pitch(const struct vgs_rt_driver *cu, void **pointer, size_t *pitch, size_t width, size_t height) {
  enum { ELEMENT_NBYTES = 4 };
  CUdeviceptr address = 0;
  size_t found = 0;
  int result = width && height ? cu->cuMemAllocPitch_v2(&address, &found, width, height, ELEMENT_NBYTES) : CUDA_SUCCESS;
  if (!result) {
    *pointer = POINTER(address);
    *pitch = found;
  }
  return result;
}

int vgs_cudaMallocPitch(const struct vgs_rt_driver *cu, void **devPtr, size_t *pitch, size_t width, size_t height) {
  return devPtr && pitch ? alloc_pitch(cu, devPtr, pitch, width, height) : CUDA_ERROR_INVALID_VALUE;
}

int vgs_cudaMalloc3D(const struct vgs_rt_driver *cu, struct cudaPitchedPtr *pitched, struct cudaExtent extent) {
  size_t rows;
  void *pointer;
  size_t pitch;
  if (!pitched || __builtin_mul_overflow(extent.height, extent.depth, &rows))
    return CUDA_ERROR_INVALID_VALUE;
  int result = alloc_pitch(cu, &pointer, &pitch, extent.width, rows);
  if (!result)
    *pitched = (struct cudaPitchedPtr){pointer, pitch, extent.width, extent.height};
  return result;
}

int vgs_cudaMallocManaged(const struct vgs_rt_driver *cu, void **devPtr, size_t size, unsigned int flags) {
  CUdeviceptr address;
  if (!devPtr)
    return CUDA_ERROR_INVALID_VALUE;
  int result = cu->cuMemAllocManaged(&address, size, flags);
  if (!result)
    *devPtr = POINTER(address);
  return result;
}

int vgs_cudaFree(const struct vgs_rt_driver *cu, void *devPtr) {
  return devPtr ? cu->cuMemFree_v2(ADDRESS(devPtr)) : CUDA_SUCCESS;
}

int vgs_cudaHostAlloc(const struct vgs_rt_driver *cu, void **ptr, size_t size, unsigned int flags) {
  void *pointer = NULL;
  if (!ptr)
    return CUDA_ERROR_INVALID_VALUE;
  int result = size ? cu->cuMemHostAlloc(&pointer, size, flags) : CUDA_SUCCESS;
  if (!result)
    *ptr = pointer;
  return result;
}

int vgs_cudaMallocHost(const struct vgs_rt_driver *cu, void **ptr, size_t size) {
  return vgs_cudaHostAlloc(cu, ptr, size, 0);
}

int vgs_cudaFreeHost(const struct vgs_rt_driver *cu, void *ptr) { return ptr ? cu->cuMemFreeHost(ptr) : CUDA_SUCCESS; }

int vgs_cudaMallocAsync(const struct vgs_rt_driver *cu, void **devPtr, size_t size, CUstream stream) {
  CUdeviceptr address = 0;
  if (!devPtr)
    return CUDA_ERROR_INVALID_VALUE;
  int result = cu->cuMemAllocAsync(&address, size, stream);
  if (!result)
    *devPtr = POINTER(address);
  return result;
}

int vgs_cudaMallocFromPoolAsync(const struct vgs_rt_driver *cu, void **devPtr, size_t size, CUmemoryPool pool,
                                CUstream stream) {
  CUdeviceptr address = 0;
  if (!devPtr)
    return CUDA_ERROR_INVALID_VALUE;
  int result = cu->cuMemAllocFromPoolAsync(&address, size, pool, stream);
  if (!result)
    *devPtr = POINTER(address);
  return result;
}

int vgs_cudaFreeAsync(const struct vgs_rt_driver *cu, void *devPtr, CUstream stream) {
  return devPtr ? cu->cuMemFreeAsync(ADDRESS(devPtr), stream) : CUDA_SUCCESS;
}

int vgs_cudaPointerGetAttributes(const struct vgs_rt_driver *cu, struct cudaPointerAttributes *attributes,
                                 const void *ptr) {
  enum { UNREGISTERED = 0, HOST = 1, DEVICE = 2, MANAGED = 3, NO_DEVICE = -2 };
  enum { MEMORY_TYPE = 2, DEVICE_POINTER = 3, HOST_POINTER = 4, IS_MANAGED = 8, DEVICE_ORDINAL = 9, COUNT = 5 };
  int ids[COUNT] = {MEMORY_TYPE, DEVICE_POINTER, HOST_POINTER, IS_MANAGED, DEVICE_ORDINAL};
  unsigned type = 0, managed = 0;
  int ordinal = NO_DEVICE;
  CUdeviceptr device = 0;
  void *host = NULL;
  void *values[COUNT] = {&type, &device, &host, &managed, &ordinal};
  if (!attributes)
    return CUDA_ERROR_INVALID_VALUE;
  int result = cu->cuPointerGetAttributes(COUNT, ids, values, ADDRESS(ptr));
  if (result)
    return result;
  memset(attributes, 0, sizeof *attributes);
  /* Memory that the driver does not know is the program's own. */
  attributes->type = !type ? UNREGISTERED : managed ? MANAGED : type == CU_MEMORYTYPE_HOST ? HOST : DEVICE;
  attributes->device = type ? ordinal : NO_DEVICE;
  attributes->devicePointer = POINTER(device);
  attributes->hostPointer = host;
  return CUDA_SUCCESS;
}
