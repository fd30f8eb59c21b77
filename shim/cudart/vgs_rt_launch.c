/* Launches: the configuration that `<<<>>>` pushes before it evaluates the arguments, and the kernel's start. */
#include "vgs_rt.h"
#include "vgs_rt_api.h"
#include "vgs_rt_context.h"
#include "vgs_rt_error.h"
#include "vgs_rt_registry.h"
#include <limits.h>

/* Arguments of a launch may launch, too; so it is a stack. Nobody nests deeper than this. */
enum { STACK_DEPTH = 64 };

static _Thread_local struct configuration {
  struct dim3 grid, block;
  size_t shared_nbytes;
  CUstream stream;
} stack[STACK_DEPTH];
static _Thread_local int depth;

/* On a result other than 0 the compiler's stub does not launch. */
unsigned int vgs___cudaPushCallConfiguration(struct dim3 gridDim, struct dim3 blockDim, size_t sharedMem,
                                             CUstream stream) {
  if (depth == STACK_DEPTH)
    return (unsigned)vgs_rt_leave("__cudaPushCallConfiguration", VGS_RT_MISSING_CONFIGURATION);
  stack[depth++] = (struct configuration){gridDim, blockDim, sharedMem, stream};
  return 0;
}

int vgs___cudaPopCallConfiguration(const struct vgs_rt_driver *cu, struct dim3 *gridDim, struct dim3 *blockDim,
                                   size_t *sharedMem, CUstream *stream) {
  (void)cu;
  if (!depth)
    return VGS_RT_MISSING_CONFIGURATION;
  const struct configuration *top = &stack[--depth];
  *gridDim = top->grid;
  *blockDim = top->block;
  *sharedMem = top->shared_nbytes;
  *stream = top->stream;
  return CUDA_SUCCESS;
}

/* The driver accepts a kernel in place of a function, and uses the kernel's function in the current context. */
static int as_function(const void *func, CUfunction *function) {
  CUkernel kernel;
  int result = vgs_rt_kernel(func, &kernel);
  if (!result)
    *function = (CUfunction)kernel;
  return result;
}

/* Before 13 a grid or block that no kernel could have is an error of its own. */
static int launch_result(const struct vgs_rt_driver *cu, int result, struct dim3 grid, struct dim3 block) {
  enum { MAX_THREADS_PER_BLOCK = 1, MAX_BLOCK_DIM_X = 2 }; /* grid limits follow the block's */
  if (VGS_RT_MAJOR >= 13 || result != CUDA_ERROR_INVALID_VALUE)
    return result;
  unsigned dims[6] = {block.x, block.y, block.z, grid.x, grid.y, grid.z};
  int device = 0, most = 0;
  if (vgs_rt_current_device(&device))
    return result;
  for (int i = 0; i < 6; i++)
    if (!dims[i] || cu->cuDeviceGetAttribute(&most, MAX_BLOCK_DIM_X + i, device) || dims[i] > (unsigned)most)
      return VGS_RT_INVALID_CONFIGURATION;
  if (cu->cuDeviceGetAttribute(&most, MAX_THREADS_PER_BLOCK, device) ||
      (uint64_t)block.x * block.y * block.z > (unsigned)most)
    return VGS_RT_INVALID_CONFIGURATION;
  return result;
}

int vgs_cudaLaunchKernel(const struct vgs_rt_driver *cu, const void *func, struct dim3 gridDim, struct dim3 blockDim,
                         void **args, size_t sharedMem, CUstream stream) {
  CUfunction function;
  int result = as_function(func, &function);
  if (result)
    return result;
  if (sharedMem > UINT_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  result = cu->cuLaunchKernel(function, gridDim.x, gridDim.y, gridDim.z, blockDim.x, blockDim.y, blockDim.z,
                              (unsigned)sharedMem, stream, args, NULL);
  return launch_result(cu, result, gridDim, blockDim);
}

int vgs_cudaLaunchCooperativeKernel(const struct vgs_rt_driver *cu, const void *func, struct dim3 gridDim,
                                    struct dim3 blockDim, void **args, size_t sharedMem, CUstream stream) {
  CUfunction function;
  int result = as_function(func, &function);
  if (result)
    return result;
  if (sharedMem > UINT_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  result = cu->cuLaunchCooperativeKernel(function, gridDim.x, gridDim.y, gridDim.z, blockDim.x, blockDim.y, blockDim.z,
                                         (unsigned)sharedMem, stream, args);
  return launch_result(cu, result, gridDim, blockDim);
}

static int driver_config(const struct cudaLaunchConfig_t *config, CUlaunchConfig *out) {
  if (!config || config->dynamicSmemBytes > UINT_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  *out = (CUlaunchConfig){
      .gridDimX = config->gridDim.x,
      .gridDimY = config->gridDim.y,
      .gridDimZ = config->gridDim.z,
      .blockDimX = config->blockDim.x,
      .blockDimY = config->blockDim.y,
      .blockDimZ = config->blockDim.z,
      .sharedMemBytes = (uint32_t)config->dynamicSmemBytes,
      .hStream = config->stream,
      .attrs = config->attrs, /* same layout, same ids */
      .numAttrs = config->numAttrs,
  };
  return CUDA_SUCCESS;
}

static int driver_launch(const void *func, const struct cudaLaunchConfig_t *config, CUfunction *function,
                         CUlaunchConfig *launch) {
  int result = as_function(func, function);
  return result ? result : driver_config(config, launch);
}

int vgs_cudaLaunchKernelExC(const struct vgs_rt_driver *cu, const struct cudaLaunchConfig_t *config, const void *func,
                            void **args) {
  CUfunction function;
  CUlaunchConfig launch;
  int result = driver_launch(func, config, &function, &launch);
  return result ? result : cu->cuLaunchKernelEx(&launch, function, args, NULL);
}

#if VGS_RT_MAJOR >= 12
/* Stubs of CUDA 13 call this once, maybe before the program has a device, and do not retry on failure. So the handle is
 * the host function itself, and the launch finds the kernel. */
int vgs___cudaGetKernel(const struct vgs_rt_driver *cu, CUkernel *kernel, const void *function) {
  (void)cu;
  if (!kernel)
    return CUDA_ERROR_INVALID_VALUE;
  if (!vgs_rt_is_registered(function))
    return VGS_RT_INVALID_DEVICE_FUNCTION;
  *kernel = (CUkernel)function;
  return CUDA_SUCCESS;
}

int vgs___cudaLaunchKernel(const struct vgs_rt_driver *cu, CUkernel kernel, struct dim3 gridDim, struct dim3 blockDim,
                           void **args, size_t sharedMem, CUstream stream) {
  return vgs_cudaLaunchKernel(cu, kernel, gridDim, blockDim, args, sharedMem, stream);
}
#endif

/* --- occupancy --- */

int vgs_cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(const struct vgs_rt_driver *cu, int *numBlocks,
                                                               const void *func, int blockSize, size_t dynamicSMemSize,
                                                               unsigned int flags) {
  CUfunction function;
  int result = as_function(func, &function);
  return result ? result
                : cu->cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks, function, blockSize,
                                                                           dynamicSMemSize, flags);
}

int vgs_cudaOccupancyMaxActiveBlocksPerMultiprocessor(const struct vgs_rt_driver *cu, int *numBlocks, const void *func,
                                                      int blockSize, size_t dynamicSMemSize) {
  return vgs_cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(cu, numBlocks, func, blockSize, dynamicSMemSize, 0);
}

int vgs_cudaOccupancyAvailableDynamicSMemPerBlock(const struct vgs_rt_driver *cu, size_t *dynamicSmemSize,
                                                  const void *func, int numBlocks, int blockSize) {
  CUfunction function;
  int result = as_function(func, &function);
  return result ? result : cu->cuOccupancyAvailableDynamicSMemPerBlock(dynamicSmemSize, function, numBlocks, blockSize);
}

int vgs_cudaOccupancyMaxActiveClusters(const struct vgs_rt_driver *cu, int *count, const void *func,
                                       const struct cudaLaunchConfig_t *config) {
  CUfunction function;
  CUlaunchConfig launch;
  int result = driver_launch(func, config, &function, &launch);
  return result ? result : cu->cuOccupancyMaxActiveClusters(count, function, &launch);
}

int vgs_cudaOccupancyMaxPotentialClusterSize(const struct vgs_rt_driver *cu, int *size, const void *func,
                                             const struct cudaLaunchConfig_t *config) {
  CUfunction function;
  CUlaunchConfig launch;
  int result = driver_launch(func, config, &function, &launch);
  return result ? result : cu->cuOccupancyMaxPotentialClusterSize(size, function, &launch);
}
