/* Kernels' attributes and names. Attributes are those of the kernel's function in the current context. */
#include "vgs_rt.h"
#include "vgs_rt_api.h"
#include "vgs_rt_registry.h"
#include <string.h>

int vgs_cudaFuncGetAttributes(const struct vgs_rt_driver *cu, struct cudaFuncAttributes *attr, const void *func) {
  CUfunction function;
  if (!attr)
    return CUDA_ERROR_INVALID_VALUE;
  int result = vgs_rt_function(func, &function);
  if (result)
    return result;
  enum { COUNT = VGS_RT_MAJOR >= 12 ? VGW_FUNC_ATTRIBUTE_COUNT : CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET };
  int value[COUNT];
  for (int i = 0; i < COUNT; i++)
    if ((result = cu->cuFuncGetAttribute(&value[i], i, function)))
      return result;
  struct cudaFuncAttributes found = {
      .sharedSizeBytes = (size_t)value[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES],
      .constSizeBytes = (size_t)value[CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES],
      .localSizeBytes = (size_t)value[CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES],
      .maxThreadsPerBlock = value[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK],
      .numRegs = value[CU_FUNC_ATTRIBUTE_NUM_REGS],
      .ptxVersion = value[CU_FUNC_ATTRIBUTE_PTX_VERSION],
      .binaryVersion = value[CU_FUNC_ATTRIBUTE_BINARY_VERSION],
      .cacheModeCA = value[CU_FUNC_ATTRIBUTE_CACHE_MODE_CA],
      .maxDynamicSharedSizeBytes = value[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES],
      .preferredShmemCarveout = value[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT],
#if VGS_RT_MAJOR >= 12
      .clusterDimMustBeSet = value[CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET],
      .requiredClusterWidth = value[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH],
      .requiredClusterHeight = value[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT],
      .requiredClusterDepth = value[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH],
      .clusterSchedulingPolicyPreference = value[CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE],
      .nonPortableClusterSizeAllowed = value[CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED],
#endif
  };
  /* Programs built with an early 12 have a struct without the reserved end: it must not be written. */
#if VGS_RT_MAJOR >= 12
  memcpy(attr, &found, offsetof(struct cudaFuncAttributes, reserved));
#else
  memcpy(attr, &found, sizeof found);
#endif
  return CUDA_SUCCESS;
}

/* The ids are the driver's. */
int vgs_cudaFuncSetAttribute(const struct vgs_rt_driver *cu, const void *func, int attr, int value) {
  CUfunction function;
  int result = vgs_rt_function(func, &function);
  return result ? result : cu->cuFuncSetAttribute(function, attr, value);
}

/* For calls that take a host function, and no kernel handle; for a handle NVIDIA's runtime returns another error. */
static int symbol_function(const void *symbol, CUfunction *function) {
  return vgs_rt_is_registered(symbol) ? vgs_rt_function(symbol, function) : VGS_RT_INVALID_DEVICE_FUNCTION;
}

/* The two functions that set a configuration also take kernel handles from CUDA 13 on. */
static int configurable_function(const void *func, CUfunction *function) {
  return VGS_RT_MAJOR >= 13 ? vgs_rt_function(func, function) : symbol_function(func, function);
}

int vgs_cudaFuncSetCacheConfig(const struct vgs_rt_driver *cu, const void *func, int config) {
  CUfunction function;
  int result = configurable_function(func, &function);
  return result ? result : cu->cuFuncSetCacheConfig(function, config);
}

int vgs_cudaFuncSetSharedMemConfig(const struct vgs_rt_driver *cu, const void *func, int config) {
  CUfunction function;
  int result = configurable_function(func, &function);
  return result ? result : cu->cuFuncSetSharedMemConfig(function, config);
}

int vgs_cudaGetFuncBySymbol(const struct vgs_rt_driver *cu, CUfunction *function, const void *symbol) {
  (void)cu;
  return function ? symbol_function(symbol, function) : CUDA_ERROR_INVALID_VALUE;
}

#if VGS_RT_MAJOR >= 12
int vgs_cudaFuncGetName(const struct vgs_rt_driver *cu, const char **name, const void *func) {
  CUkernel kernel;
  int result = vgs_rt_kernel(func, &kernel);
  return result ? result : cu->cuKernelGetName(name, kernel);
}

int vgs_cudaFuncGetParamInfo(const struct vgs_rt_driver *cu, const void *func, size_t index, size_t *offset,
                             size_t *size) {
  CUkernel kernel;
  int result = vgs_rt_kernel(func, &kernel);
  return result ? result : cu->cuKernelGetParamInfo(kernel, index, offset, size);
}

int vgs_cudaGetKernel(const struct vgs_rt_driver *cu, CUkernel *kernel, const void *func) {
  (void)cu;
  CUkernel found;
  int result = kernel ? vgs_rt_kernel(func, &found) : CUDA_ERROR_INVALID_VALUE;
  if (!result)
    result = vgs_rt_kernel_given(found);
  if (!result)
    *kernel = found;
  return result;
}

int vgs_cudaLibraryGetKernel(const struct vgs_rt_driver *cu, CUkernel *kernel, CUlibrary library, const char *name) {
  CUkernel found;
  int result = kernel ? cu->cuLibraryGetKernel(&found, library, name) : CUDA_ERROR_INVALID_VALUE;
  if (!result)
    result = vgs_rt_kernel_given(found);
  if (!result)
    *kernel = found;
  return result;
}

int vgs_cudaLibraryEnumerateKernels(const struct vgs_rt_driver *cu, CUkernel *kernels, unsigned int numKernels,
                                    CUlibrary library) {
  int result = cu->cuLibraryEnumerateKernels(kernels, numKernels, library);
  for (unsigned i = 0; i < numKernels && !result; i++)
    if (kernels[i])
      result = vgs_rt_kernel_given(kernels[i]);
  return result;
}
#endif
