/* Fills, of bytes: in a row, a plane, a box. */
#include "vgs_rt.h"
#include "vgs_rt_api.h"

#define ADDRESS(pointer) ((CUdeviceptr)(uintptr_t)(pointer))

int vgs_cudaMemset(const struct vgs_rt_driver *cu, void *devPtr, int value, size_t count) {
  return count ? cu->cuMemsetD8_v2(ADDRESS(devPtr), (unsigned char)value, count) : CUDA_SUCCESS;
}

int vgs_cudaMemsetAsync(const struct vgs_rt_driver *cu, void *devPtr, int value, size_t count, CUstream stream) {
  return count ? cu->cuMemsetD8Async(ADDRESS(devPtr), (unsigned char)value, count, stream) : CUDA_SUCCESS;
}

int vgs_cudaMemset2D(const struct vgs_rt_driver *cu, void *devPtr, size_t pitch, int value, size_t width,
                     size_t height) {
  if (!width || !height)
    return CUDA_SUCCESS;
  return cu->cuMemsetD2D8_v2(ADDRESS(devPtr), pitch, (unsigned char)value, width, height);
}

int vgs_cudaMemset2DAsync(const struct vgs_rt_driver *cu, void *devPtr, size_t pitch, int value, size_t width,
                          size_t height, CUstream stream) {
  if (!width || !height)
    return CUDA_SUCCESS;
  return cu->cuMemsetD2D8Async(ADDRESS(devPtr), pitch, (unsigned char)value, width, height, stream);
}

/* A box is one plane where its slices follow each other without a gap, else a plane for each slice. */
static int box(const struct vgs_rt_driver *cu, struct cudaPitchedPtr pitched, int value, struct cudaExtent extent,
               bool async, CUstream stream) {
  if (!extent.width || !extent.height || !extent.depth)
    return CUDA_SUCCESS;
  if (!pitched.ptr || extent.width > pitched.pitch || (extent.depth > 1 && extent.height > pitched.ysize))
    return CUDA_ERROR_INVALID_VALUE;
  size_t height = extent.height, planes = extent.depth, step = 0, end;
  if (extent.depth > 1 && extent.height == pitched.ysize) {
    if (__builtin_mul_overflow(height, planes, &height))
      return CUDA_ERROR_INVALID_VALUE;
    planes = 1;
  } else if (extent.depth > 1 && (__builtin_mul_overflow(pitched.pitch, pitched.ysize, &step) ||
                                  __builtin_mul_overflow(step, planes, &end)))
    return CUDA_ERROR_INVALID_VALUE;
  int result = CUDA_SUCCESS;
  for (size_t i = 0; i < planes && !result; i++) {
    CUdeviceptr start = ADDRESS(pitched.ptr) + i * step;
    unsigned char byte = (unsigned char)value;
    result = async ? cu->cuMemsetD2D8Async(start, pitched.pitch, byte, extent.width, height, stream)
                   : cu->cuMemsetD2D8_v2(start, pitched.pitch, byte, extent.width, height);
  }
  return result;
}

int vgs_cudaMemset3D(const struct vgs_rt_driver *cu, struct cudaPitchedPtr pitched, int value,
                     struct cudaExtent extent) {
  return box(cu, pitched, value, extent, false, NULL);
}

int vgs_cudaMemset3DAsync(const struct vgs_rt_driver *cu, struct cudaPitchedPtr pitched, int value,
                          struct cudaExtent extent, CUstream stream) {
  return box(cu, pitched, value, extent, true, stream);
}
