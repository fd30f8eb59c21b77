/* Occupancy. The worker's answer for a kernel, block size and shared memory never changes while the kernel's
 * attributes do not, but known frameworks ask for each answer at most a few times per kernel, so every call asks the
 * worker. */
#include "vgs_api.h"
#include "vgs_device.h"
#include "vgs_enter.h"
#include "vgs_kernel.h"
#include "vgw_enums.h"

CUresult vgs_cuOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, CUfunction func, int blockSize,
                                                         size_t dynamicSMemSize) {
  return vgs_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks, func, blockSize, dynamicSMemSize, 0);
}

/* The block size that keeps the most threads of a multiprocessor busy, searched from the largest down in whole warps;
 * the first of several equals wins, so blocks are as large as they can be. */
CUresult vgs_cuOccupancyMaxPotentialBlockSizeWithFlags(int *minGridSize, int *blockSize, CUfunction func,
                                                       CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                       size_t dynamicSMemSize, int blockSizeLimit, unsigned int flags) {
  struct vgs_kernel *kernel = vgs_kernel_find(func);
  if (!minGridSize || !blockSize || flags > 1)
    return CUDA_ERROR_INVALID_VALUE;
  if (!kernel)
    return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = vgs_kernel_describe(kernel);
  if (result)
    return result;
  const int32_t *device = vgs_device(vgs_context_entered->device)->attributes;
  int warp = device[CU_DEVICE_ATTRIBUTE_WARP_SIZE] > 0 ? device[CU_DEVICE_ATTRIBUTE_WARP_SIZE] : 32;
  int limit = vgs_kernel_attribute(kernel, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  if (blockSizeLimit > 0 && blockSizeLimit < limit)
    limit = blockSizeLimit;
  int best_threads = 0, best_size = 0, best_blocks = 0;
  for (int rounded = (limit + warp - 1) / warp * warp; rounded > 0; rounded -= warp) {
    int size = rounded < limit ? rounded : limit, blocks;
    size_t shared = blockSizeToDynamicSMemSize ? blockSizeToDynamicSMemSize(size) : dynamicSMemSize;
    result = vgs_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, func, size, shared, flags);
    if (result)
      return result;
    if (size * blocks > best_threads) {
      best_threads = size * blocks;
      best_size = size;
      best_blocks = blocks;
    }
    if (best_threads >= device[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR])
      break;
  }
  *blockSize = best_size;
  *minGridSize = best_blocks * device[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];
  return CUDA_SUCCESS;
}

CUresult vgs_cuOccupancyMaxPotentialBlockSize(int *minGridSize, int *blockSize, CUfunction func,
                                              CUoccupancyB2DSize blockSizeToDynamicSMemSize, size_t dynamicSMemSize,
                                              int blockSizeLimit) {
  return vgs_cuOccupancyMaxPotentialBlockSizeWithFlags(minGridSize, blockSize, func, blockSizeToDynamicSMemSize,
                                                       dynamicSMemSize, blockSizeLimit, 0);
}

/* Clusters: the launch's attributes decide, so they travel as for a launch; events among them do not matter and are not
 * sent. */
static CUresult clusters(int *value, uint32_t potential, CUfunction func, const CUlaunchConfig *config) {
  enum { ATTRIBUTES_MAX = 64 };
  struct vgs_kernel *kernel = vgs_kernel_find(func);
  if (!value || !config || config->numAttrs > ATTRIBUTES_MAX || (config->numAttrs && !config->attrs))
    return CUDA_ERROR_INVALID_VALUE;
  if (!kernel)
    return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = vgs_kernel_describe(kernel);
  if (result)
    return result;
  CUlaunchAttribute attributes[ATTRIBUTES_MAX];
  uint32_t count = 0;
  for (uint32_t i = 0; i < config->numAttrs; i++)
    if (config->attrs[i].id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT &&
        config->attrs[i].id != CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT)
      attributes[count++] = config->attrs[i];
  return vgs_send_vgpuClusterOccupancy(value, potential, kernel->object.kind, kernel->object.id, config->gridDimX,
                                       config->gridDimY, config->gridDimZ, config->blockDimX, config->blockDimY,
                                       config->blockDimZ, config->sharedMemBytes, count * (uint32_t)sizeof *attributes,
                                       attributes);
}

CUresult vgs_cuOccupancyMaxActiveClusters(int *numClusters, CUfunction func, const CUlaunchConfig *config) {
  return clusters(numClusters, 0, func, config);
}

CUresult vgs_cuOccupancyMaxPotentialClusterSize(int *clusterSize, CUfunction func, const CUlaunchConfig *config) {
  return clusters(clusterSize, 1, func, config);
}
