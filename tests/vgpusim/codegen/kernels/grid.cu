// Grid-wide barriers. nvcc -ptx -arch=compute_XX; the PTX beside this file is what tests use.
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

// In each round every block reads what the next block wrote in the previous round, through its own shared memory.
extern "C" __global__ void rotate(unsigned *a, unsigned *b, int rounds) {
  cg::grid_group grid = cg::this_grid();
  extern __shared__ unsigned tile[];
  unsigned count = grid.size(), me = grid.thread_rank(), t = cg::this_thread_block().thread_rank();
  for (int round = 0; round < rounds; round++) {
    tile[t] = a[(me + cg::this_thread_block().size()) % count];
    __syncthreads();
    b[me] = tile[t] + tile[cg::this_thread_block().size() - 1 - t] * 3 + round;
    grid.sync();
    unsigned *swap = a;
    a = b;
    b = swap;
  }
}

// Blocks take turns, each waiting for the next higher one: all blocks must be resident at once.
extern "C" __global__ void from_the_last(volatile unsigned *turn, unsigned *order) {
  if (threadIdx.x == 0) {
    while (*turn != gridDim.x - 1 - blockIdx.x)
      ;
    order[blockIdx.x] = *turn;
    __threadfence();
    *turn = *turn + 1;
  }
}

// A lock that lanes of all warps take: lanes of one warp wait for each other too.
extern "C" __global__ void locked(unsigned *lock, unsigned *count) {
  bool done = false;
  while (!done) {
    if (atomicCAS(lock, 0, 1) == 0) {
      __threadfence();
      *(volatile unsigned *)count = *(volatile unsigned *)count + 1;
      __threadfence();
      atomicExch(lock, 0);
      done = true;
    }
  }
}

// No block waits for another.
extern "C" __global__ void alone(unsigned *out) { out[blockIdx.x * blockDim.x + threadIdx.x] = blockIdx.x; }
