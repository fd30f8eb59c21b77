/* How many clusters fit a device. Their dimensions are the launch's to know. */
#include "vgx_sim_kernel.h"
#include "vgx_sim_launch.h"
#include "vgx_sim_runtime.h"

/* Clusters of `size` CTAs that the device runs at once. */
static CUresult active(CUcontext ctx, CUfunction f, const CUlaunchConfig *config, uint32_t size, int *count) {
  int blocks;
  uint64_t threads = (uint64_t)config->blockDimX * config->blockDimY * config->blockDimZ;
  if (threads == 0 || threads > INT32_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result =
      vgx_sim_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, f, (int)threads, config->sharedMemBytes, 0);
  if (result == CUDA_SUCCESS)
    *count = (int)(blocks * (int64_t)vgx_sim_attribute(ctx->device, VGX_SIM_SM_COUNT, 1) / size);
  return result;
}

static CUresult enter(CUfunction func, const CUlaunchConfig *config, CUcontext *ctx, CUfunction *f) {
  CUresult result = vgx_sim_enter(ctx);
  if (result == CUDA_SUCCESS && (!config || (config->numAttrs && !config->attrs)))
    result = CUDA_ERROR_INVALID_VALUE;
  return result == CUDA_SUCCESS ? vgx_sim_function_pin(*ctx, func, f) : result;
}

CUresult vgx_sim_cuOccupancyMaxActiveClusters(int *numClusters, CUfunction func, const CUlaunchConfig *config) {
  CUcontext ctx;
  CUfunction f;
  uint32_t asked[3], cluster[3];
  int count = 0;
  CUresult result = numClusters ? enter(func, config, &ctx, &f) : CUDA_ERROR_INVALID_VALUE;
  if (result != CUDA_SUCCESS)
    return result;
  vgx_sim_cluster_asked(config, asked);
  uint32_t grid[3] = {config->gridDimX, config->gridDimY, config->gridDimZ};
  result = vgx_sim_cluster_of(ctx->device, f, asked, grid, cluster);
  if (result == CUDA_SUCCESS)
    result = active(ctx, f, config, vgx_sim_cluster_size(cluster), &count);
  vgx_sim_function_unpin(f);
  if (result == CUDA_SUCCESS)
    *numClusters = count;
  return result;
}

/* The largest of which one fits. */
CUresult vgx_sim_cuOccupancyMaxPotentialClusterSize(int *clusterSize, CUfunction func, const CUlaunchConfig *config) {
  CUcontext ctx;
  CUfunction f;
  int count = 0;
  CUresult result = clusterSize ? enter(func, config, &ctx, &f) : CUDA_ERROR_INVALID_VALUE;
  if (result != CUDA_SUCCESS)
    return result;
  uint32_t size = vgx_sim_cluster_largest(f);
  if (!vgx_sim_attribute(ctx->device, VGX_SIM_CLUSTER_LAUNCH, 0))
    result = CUDA_ERROR_NOT_SUPPORTED;
  if (result == CUDA_SUCCESS)
    result = active(ctx, f, config, size, &count);
  while (result == CUDA_SUCCESS && count == 0 && size > 1) {
    size /= 2;
    result = active(ctx, f, config, size, &count);
  }
  vgx_sim_function_unpin(f);
  if (result == CUDA_SUCCESS)
    *clusterSize = count ? (int)size : 0;
  return result;
}
