/* Clusters of CTAs: their dimensions, and how many fit a device. */
#include "vgx_sim_cluster.h"

#include <string.h>

#include "vgx_sim_kernel.h"
#include "vgx_sim_runtime.h"

#define PORTABLE_CLUSTER_MAX 8u /* largest portable cluster, in CTAs (CUDA programming guide) */
#define CLUSTER_MAX 16u

void vgx_sim_cluster_asked(const CUlaunchConfig *config, uint32_t asked[3]) {
  memset(asked, 0, 3 * sizeof asked[0]);
  for (uint32_t i = 0; i < config->numAttrs; i++)
    if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
      const CUlaunchAttributeValue *value = &config->attrs[i].value;
      asked[0] = value->clusterDim.x;
      asked[1] = value->clusterDim.y;
      asked[2] = value->clusterDim.z;
    }
}

uint32_t vgx_sim_cluster_largest(CUfunction f) {
  vgx_sim_lock();
  bool beyond = f->attributes[CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED] != 0;
  vgx_sim_unlock();
  return beyond ? CLUSTER_MAX : PORTABLE_CLUSTER_MAX;
}

CUresult vgx_sim_cluster_of(const struct vgx_sim_device *device, CUfunction f, const uint32_t asked[3],
                            const uint32_t grid[3], uint32_t cluster[3]) {
  bool asks = asked && (asked[0] || asked[1] || asked[2]);
  vgx_sim_lock();
  for (int i = 0; i < 3; i++) {
    uint32_t set = (uint32_t)f->attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH + i];
    cluster[i] = asks ? asked[i] : set ? set : 1;
  }
  vgx_sim_unlock();
  if (cluster[0] == 1 && cluster[1] == 1 && cluster[2] == 1 && !f->info.cluster[0])
    return CUDA_SUCCESS;
  if (!vgx_sim_attribute(device, VGX_SIM_CLUSTER_LAUNCH, 0))
    return CUDA_ERROR_NOT_SUPPORTED;
  uint64_t size = 1;
  for (int i = 0; i < 3; i++) {
    if (cluster[i] == 0 || cluster[i] > CLUSTER_MAX || grid[i] % cluster[i] ||
        (f->info.cluster[0] && cluster[i] != f->info.cluster[i]))
      return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    size *= cluster[i];
  }
  return size > vgx_sim_cluster_largest(f) ? CUDA_ERROR_INVALID_CLUSTER_SIZE : CUDA_SUCCESS;
}

/* How many clusters of `size` CTAs the device runs at once. */
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

/* The largest cluster size of which at least one fits on the device. */
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
