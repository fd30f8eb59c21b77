// Clusters: nvcc -arch=sm_90 -ptx -o cluster_sm90.ptx cluster.cu
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

// Each CTA puts its part into shared memory. In each round it combines elements of the next CTA of its cluster, which
// it reads remotely.
extern "C" __global__ void exchange(const unsigned *in, unsigned *out, unsigned rounds) {
  extern __shared__ unsigned part[];
  cg::cluster_group cluster = cg::this_cluster();
  unsigned place = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  part[threadIdx.x] = in[place * blockDim.x + threadIdx.x];
  for (unsigned round = 0; round < rounds; round++) {
    cluster.sync();
    unsigned next = (cluster.block_rank() + 1) % cluster.num_blocks();
    const unsigned *other = cluster.map_shared_rank(part, next);
    unsigned seen = other[threadIdx.x] + 3 * other[blockDim.x - 1 - threadIdx.x] + round;
    cluster.sync();
    part[threadIdx.x] = seen;
  }
  cluster.sync();
  out[place * blockDim.x + threadIdx.x] = part[threadIdx.x];
}

// Remote atomics into rank 0's histogram; `who` gets each CTA's rank and position in its cluster.
extern "C" __global__ void count(const unsigned *in, unsigned *bins, unsigned *who) {
  __shared__ unsigned own[16];
  cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x < 16)
    own[threadIdx.x] = 0;
  cluster.sync();
  unsigned place = blockIdx.y * gridDim.x + blockIdx.x;
  atomicAdd(cluster.map_shared_rank(own, 0) + in[place * blockDim.x + threadIdx.x] % 16, 1u);
  cluster.sync();
  if (cluster.block_rank() == 0 && threadIdx.x < 16)
    atomicAdd(bins + threadIdx.x, own[threadIdx.x]);
  if (threadIdx.x == 0) {
    dim3 index = cluster.block_index(), size = cluster.dim_blocks();
    who[8 * place] = cluster.block_rank();
    who[8 * place + 1] = cluster.num_blocks();
    who[8 * place + 2] = index.x;
    who[8 * place + 3] = index.y;
    who[8 * place + 4] = size.x;
    who[8 * place + 5] = size.y;
    who[8 * place + 6] = cluster.query_shared_rank(cluster.map_shared_rank(own, cluster.num_blocks() - 1));
    who[8 * place + 7] = __isShared(own) && !__isGlobal(own);
  }
}

// The first warp arrives, then waits for a flag that another warp sets after the barrier: arriving does not block.
extern "C" __global__ void early(unsigned *out) {
  __shared__ volatile unsigned flag;
  cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x == 0)
    flag = 0;
  cluster.sync();
  if (threadIdx.x < 32) {
    auto token = cluster.barrier_arrive();
    volatile unsigned *last = (volatile unsigned *)cluster.map_shared_rank((unsigned *)&flag, cluster.num_blocks() - 1);
    while (*last == 0) // set by another warp after that warp has passed the barrier
      ;
    cluster.barrier_wait(static_cast<decltype(token) &&>(token));
  } else {
    cluster.sync();
    if (threadIdx.x == 32 && cluster.block_rank() == cluster.num_blocks() - 1)
      flag = 7;
  }
  cluster.sync();
  if (threadIdx.x == 0)
    out[blockIdx.x] = *cluster.map_shared_rank((unsigned *)&flag, cluster.num_blocks() - 1);
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) required(unsigned *out) {
  __shared__ unsigned own;
  cg::cluster_group cluster = cg::this_cluster();
  own = 100 * blockIdx.x;
  cluster.sync();
  out[blockIdx.x] = *cluster.map_shared_rank(&own, cluster.block_rank() ^ 1);
  cluster.sync();
}
