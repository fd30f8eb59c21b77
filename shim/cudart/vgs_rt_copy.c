/* Copies: the direction chooses the driver's function, "default" leaves it to the driver. */
#include "vgs_rt_copy.h"
#include "vgs_rt_api.h"
#include "vgs_rt_context.h"
#include "vgs_rt_registry.h"

#define ADDRESS(pointer) ((CUdeviceptr)(uintptr_t)(pointer))

int vgs_cudaMemcpy(const struct vgs_rt_driver *cu, void *dst, const void *src, size_t count, int kind) {
  if (kind < COPY_HOST_TO_HOST || kind > COPY_DEFAULT)
    return VGS_RT_INVALID_COPY_DIRECTION;
  if (!count)
    return CUDA_SUCCESS;
  if (!dst || !src)
    return CUDA_ERROR_INVALID_VALUE;
  switch (kind) {
  case COPY_HOST_TO_DEVICE:
    return cu->cuMemcpyHtoD_v2(ADDRESS(dst), src, count);
  case COPY_DEVICE_TO_HOST:
    return cu->cuMemcpyDtoH_v2(dst, ADDRESS(src), count);
  case COPY_DEVICE_TO_DEVICE:
    return cu->cuMemcpyDtoD_v2(ADDRESS(dst), ADDRESS(src), count);
  default:
    return cu->cuMemcpy(ADDRESS(dst), ADDRESS(src), count);
  }
}

int vgs_cudaMemcpyAsync(const struct vgs_rt_driver *cu, void *dst, const void *src, size_t count, int kind,
                        CUstream stream) {
  if (kind < COPY_HOST_TO_HOST || kind > COPY_DEFAULT)
    return VGS_RT_INVALID_COPY_DIRECTION;
  if (!count)
    return CUDA_SUCCESS;
  if (!dst || !src)
    return CUDA_ERROR_INVALID_VALUE;
  switch (kind) {
  case COPY_HOST_TO_DEVICE:
    return cu->cuMemcpyHtoDAsync_v2(ADDRESS(dst), src, count, stream);
  case COPY_DEVICE_TO_HOST:
    return cu->cuMemcpyDtoHAsync_v2(dst, ADDRESS(src), count, stream);
  case COPY_DEVICE_TO_DEVICE:
    return cu->cuMemcpyDtoDAsync_v2(ADDRESS(dst), ADDRESS(src), count, stream);
  default:
    return cu->cuMemcpyAsync(ADDRESS(dst), ADDRESS(src), count, stream);
  }
}

/* --- planes and boxes --- */

static bool source_is_host(int kind) { return kind == COPY_HOST_TO_HOST || kind == COPY_HOST_TO_DEVICE; }
static bool target_is_host(int kind) { return kind == COPY_HOST_TO_HOST || kind == COPY_DEVICE_TO_HOST; }

static CUmemorytype memory_type(int kind, bool is_host) {
  return kind == COPY_DEFAULT ? CU_MEMORYTYPE_UNIFIED : is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

static int plane(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height, int kind,
                 CUDA_MEMCPY2D *out) {
  if (kind < COPY_HOST_TO_HOST || kind > COPY_DEFAULT)
    return VGS_RT_INVALID_COPY_DIRECTION;
  if (width > dpitch || width > spitch)
    return VGS_RT_INVALID_PITCH;
  if (!dst || !src)
    return CUDA_ERROR_INVALID_VALUE;
  *out = (CUDA_MEMCPY2D){
      .srcMemoryType = memory_type(kind, source_is_host(kind)),
      .srcHost = src,
      .srcDevice = ADDRESS(src),
      .srcPitch = spitch,
      .dstMemoryType = memory_type(kind, target_is_host(kind)),
      .dstHost = dst,
      .dstDevice = ADDRESS(dst),
      .dstPitch = dpitch,
      .WidthInBytes = width,
      .Height = height,
  };
  return CUDA_SUCCESS;
}

int vgs_cudaMemcpy2D(const struct vgs_rt_driver *cu, void *dst, size_t dpitch, const void *src, size_t spitch,
                     size_t width, size_t height, int kind) {
  CUDA_MEMCPY2D copy;
  if (!width || !height)
    return CUDA_SUCCESS;
  int result = plane(dst, dpitch, src, spitch, width, height, kind, &copy);
  return result ? result : cu->cuMemcpy2DUnaligned_v2(&copy);
}

int vgs_cudaMemcpy2DAsync(const struct vgs_rt_driver *cu, void *dst, size_t dpitch, const void *src, size_t spitch,
                          size_t width, size_t height, int kind, CUstream stream) {
  CUDA_MEMCPY2D copy;
  if (!width || !height)
    return CUDA_SUCCESS;
  int result = plane(dst, dpitch, src, spitch, width, height, kind, &copy);
  return result ? result : cu->cuMemcpy2DAsync_v2(&copy, stream);
}

int vgs_rt_copy_box(const struct cudaMemcpy3DParms *params, CUDA_MEMCPY3D *out) {
  if (!params)
    return CUDA_ERROR_INVALID_VALUE;
  if (params->kind < COPY_HOST_TO_HOST || params->kind > COPY_DEFAULT)
    return VGS_RT_INVALID_COPY_DIRECTION;
  if (params->srcArray || params->dstArray)
    return CUDA_ERROR_NOT_SUPPORTED;
  int kind = params->kind;
  *out = (CUDA_MEMCPY3D){
      .srcXInBytes = params->srcPos.x,
      .srcY = params->srcPos.y,
      .srcZ = params->srcPos.z,
      .srcMemoryType = memory_type(kind, source_is_host(kind)),
      .srcHost = params->srcPtr.ptr,
      .srcDevice = ADDRESS(params->srcPtr.ptr),
      .srcPitch = params->srcPtr.pitch,
      .srcHeight = params->srcPtr.ysize,
      .dstXInBytes = params->dstPos.x,
      .dstY = params->dstPos.y,
      .dstZ = params->dstPos.z,
      .dstMemoryType = memory_type(kind, target_is_host(kind)),
      .dstHost = params->dstPtr.ptr,
      .dstDevice = ADDRESS(params->dstPtr.ptr),
      .dstPitch = params->dstPtr.pitch,
      .dstHeight = params->dstPtr.ysize,
      .WidthInBytes = params->extent.width,
      .Height = params->extent.height,
      .Depth = params->extent.depth,
  };
  return CUDA_SUCCESS;
}

int vgs_rt_copy_row(void *dst, const void *src, size_t nbytes, int kind, CUDA_MEMCPY3D *out) {
  struct cudaMemcpy3DParms params = {
      .srcPtr = {(void *)src, nbytes, nbytes, 1},
      .dstPtr = {dst, nbytes, nbytes, 1},
      .extent = {nbytes, 1, 1},
      .kind = kind,
  };
  return vgs_rt_copy_box(&params, out);
}

int vgs_cudaMemcpy3D(const struct vgs_rt_driver *cu, const struct cudaMemcpy3DParms *params) {
  CUDA_MEMCPY3D copy;
  int result = vgs_rt_copy_box(params, &copy);
  return result ? result : cu->cuMemcpy3D_v2(&copy);
}

int vgs_cudaMemcpy3DAsync(const struct vgs_rt_driver *cu, const struct cudaMemcpy3DParms *params, CUstream stream) {
  CUDA_MEMCPY3D copy;
  int result = vgs_rt_copy_box(params, &copy);
  return result ? result : cu->cuMemcpy3DAsync_v2(&copy, stream);
}

static int peers(int dstDevice, int srcDevice, CUcontext *to, CUcontext *from) {
  int result = vgs_rt_primary(dstDevice, to);
  return result ? result : vgs_rt_primary(srcDevice, from);
}

int vgs_cudaMemcpyPeer(const struct vgs_rt_driver *cu, void *dst, int dstDevice, const void *src, int srcDevice,
                       size_t count) {
  CUcontext to, from;
  int result = peers(dstDevice, srcDevice, &to, &from);
  return result || !count ? result : cu->cuMemcpyPeer(ADDRESS(dst), to, ADDRESS(src), from, count);
}

int vgs_cudaMemcpyPeerAsync(const struct vgs_rt_driver *cu, void *dst, int dstDevice, const void *src, int srcDevice,
                            size_t count, CUstream stream) {
  CUcontext to, from;
  int result = peers(dstDevice, srcDevice, &to, &from);
  return result || !count ? result : cu->cuMemcpyPeerAsync(ADDRESS(dst), to, ADDRESS(src), from, count, stream);
}

/* --- device variables --- */

static int symbol_range(const void *symbol, size_t offset, size_t count, void **address) {
  CUdeviceptr start;
  size_t nbytes;
  int result = vgs_rt_variable(symbol, &start, &nbytes);
  if (result)
    return result;
  if (offset > nbytes || count > nbytes - offset)
    return CUDA_ERROR_INVALID_VALUE;
  *address = (void *)(uintptr_t)(start + offset);
  return CUDA_SUCCESS;
}

/* A symbol is device memory: only directions that agree with that, or the default direction, are valid. */
static bool goes_to_device(int kind) {
  return kind == COPY_HOST_TO_DEVICE || kind == COPY_DEVICE_TO_DEVICE || kind == COPY_DEFAULT;
}
static bool comes_from_device(int kind) {
  return kind == COPY_DEVICE_TO_HOST || kind == COPY_DEVICE_TO_DEVICE || kind == COPY_DEFAULT;
}

int vgs_cudaMemcpyToSymbol(const struct vgs_rt_driver *cu, const void *symbol, const void *src, size_t count,
                           size_t offset, int kind) {
  void *dst;
  if (!goes_to_device(kind))
    return VGS_RT_INVALID_COPY_DIRECTION;
  int result = symbol_range(symbol, offset, count, &dst);
  return result ? result : vgs_cudaMemcpy(cu, dst, src, count, kind);
}

int vgs_cudaMemcpyToSymbolAsync(const struct vgs_rt_driver *cu, const void *symbol, const void *src, size_t count,
                                size_t offset, int kind, CUstream stream) {
  void *dst;
  if (!goes_to_device(kind))
    return VGS_RT_INVALID_COPY_DIRECTION;
  int result = symbol_range(symbol, offset, count, &dst);
  return result ? result : vgs_cudaMemcpyAsync(cu, dst, src, count, kind, stream);
}

int vgs_cudaMemcpyFromSymbol(const struct vgs_rt_driver *cu, void *dst, const void *symbol, size_t count, size_t offset,
                             int kind) {
  void *src;
  if (!comes_from_device(kind))
    return VGS_RT_INVALID_COPY_DIRECTION;
  int result = symbol_range(symbol, offset, count, &src);
  return result ? result : vgs_cudaMemcpy(cu, dst, src, count, kind);
}

int vgs_cudaMemcpyFromSymbolAsync(const struct vgs_rt_driver *cu, void *dst, const void *symbol, size_t count,
                                  size_t offset, int kind, CUstream stream) {
  void *src;
  if (!comes_from_device(kind))
    return VGS_RT_INVALID_COPY_DIRECTION;
  int result = symbol_range(symbol, offset, count, &src);
  return result ? result : vgs_cudaMemcpyAsync(cu, dst, src, count, kind, stream);
}

int vgs_cudaGetSymbolAddress(const struct vgs_rt_driver *cu, void **devPtr, const void *symbol) {
  CUdeviceptr address;
  (void)cu;
  int result = devPtr ? vgs_rt_variable(symbol, &address, NULL) : CUDA_ERROR_INVALID_VALUE;
  if (!result)
    *devPtr = (void *)(uintptr_t)address;
  return result;
}

int vgs_cudaGetSymbolSize(const struct vgs_rt_driver *cu, size_t *size, const void *symbol) {
  (void)cu;
  return size ? vgs_rt_variable(symbol, NULL, size) : CUDA_ERROR_INVALID_VALUE;
}
