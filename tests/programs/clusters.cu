// Clusters: launches with cluster dimensions from the launch, the kernel or an attribute; remote shared memory;
// occupancy; launches that must be refused.
#include <cooperative_groups.h>

#include "vgt_check.h"

namespace cg = cooperative_groups;

__global__ void ring(const unsigned *in, unsigned *out, int n) {
#if __CUDA_ARCH__ >= 900
  __shared__ unsigned part[64];
  cg::cluster_group cluster = cg::this_cluster();
  int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  part[threadIdx.x] = i < n ? in[i] : 0;
  cluster.sync();
  unsigned next = (cluster.block_rank() + 1) % cluster.num_blocks();
  unsigned value = *cluster.map_shared_rank(part + 63 - threadIdx.x, next);
  cluster.sync();
  if (i < n)
    out[i] = value + cluster.num_blocks();
#endif
}

__global__ void __cluster_dims__(2, 1, 1) pairs(unsigned *out) {
#if __CUDA_ARCH__ >= 900
  if (threadIdx.x == 0)
    out[blockIdx.x] = cg::this_cluster().block_rank() + 10 * cg::this_cluster().num_blocks();
#endif
}

static void check(const std::vector<unsigned> &in, const std::vector<unsigned> &got, int n, int size) {
  for (int i = 0; i < n; i++) {
    int block = i / 64, next = block / size * size + (block % size + 1) % size;
    int from = next * 64 + 63 - i % 64;
    unsigned expected = (from < n ? in[from] : 0) + (unsigned)size;
    EXPECT(got[i] == expected, "clusters of %d: element %d is %u instead of %u", size, i, got[i], expected);
  }
}

static cudaError_t launch(const unsigned *in, unsigned *out, int n, int blocks, int size) {
  cudaLaunchConfig_t config = {};
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {(unsigned)size, 1, 1};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(64);
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, ring, in, out, n);
}

int main(int argc, char **argv) {
  vgt_args args = vgt_parse(argc, argv, 3001);
  std::mt19937 random(args.seed);
  int n = args.size, blocks = ((n + 63) / 64 + 15) / 16 * 16, supported = 0;
  CUDA(cudaDeviceGetAttribute(&supported, cudaDevAttrClusterLaunch, 0));
  EXPECT(supported == 1, "clusters: not supported by the device");
  std::vector<unsigned> values = vgt_words(random, n);
  unsigned *in = vgt_upload(values), *out = vgt_upload(values);
  for (int size : {1, 2, 4, 8}) {
    CUDA(launch(in, out, n, blocks, size));
    CUDA(cudaDeviceSynchronize());
    check(values, vgt_download(out, n), n, size);
  }
  EXPECT_ERROR(launch(in, out, n, blocks, 16), cudaErrorInvalidClusterSize); // above the portable size of 8
  EXPECT_ERROR(launch(in, out, n, 16, 3), cudaErrorInvalidClusterSize);      // 16 blocks are not a multiple of 3
  CUDA(cudaFuncSetAttribute(ring, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  CUDA(launch(in, out, n, blocks, 16));
  CUDA(cudaDeviceSynchronize());
  check(values, vgt_download(out, n), n, 16);

  pairs<<<6, 32>>>(out);
  CUDA(cudaDeviceSynchronize());
  std::vector<unsigned> ranks = vgt_download(out, 6);
  for (int i = 0; i < 6; i++)
    EXPECT(ranks[i] == (unsigned)(i % 2 + 20), "clusters: block %d of pairs says %u", i, ranks[i]);
  pairs<<<5, 32>>>(out);
  EXPECT_ERROR(cudaGetLastError(), cudaErrorInvalidClusterSize);

  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(16);
  config.blockDim = dim3(64);
  int largest = 0, active = 0;
  CUDA(cudaOccupancyMaxPotentialClusterSize(&largest, ring, &config));
  EXPECT(largest == 16, "clusters: the largest is %d", largest);
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {4, 1, 1};
  config.attrs = &attribute;
  config.numAttrs = 1;
  CUDA(cudaOccupancyMaxActiveClusters(&active, ring, &config));
  EXPECT(active > 0, "clusters: %d at once", active);
  CUDA(cudaFree(in));
  CUDA(cudaFree(out));
  printf("ok clusters n=%d\n", n);
  return 0;
}
