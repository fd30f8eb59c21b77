// Barrier objects in shared memory: mbarrier instructions from sm_80 on. nvcc -std=c++17 -ptx -arch=compute_80 and 90.
#include <cooperative_groups.h>
#include <cuda/barrier>
#include <cuda/pipeline>
namespace cg = cooperative_groups;
using block_barrier = cuda::barrier<cuda::thread_scope_block>;

// Warps arrive first and wait later: each block reverses its part three times.
extern "C" __global__ void exchange(const int *x, int *out) {
  __shared__ int tile[2][128];
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ block_barrier ready;
  if (threadIdx.x == 0)
    init(&ready, blockDim.x);
  __syncthreads();
  int value = x[blockIdx.x * 128 + threadIdx.x];
  for (int round = 0; round < 3; round++) {
    tile[round % 2][threadIdx.x] = value + round;
    auto token = ready.arrive();
    int own = tile[round % 2][threadIdx.x];
    ready.wait(std::move(token));
    value = tile[round % 2][127 - threadIdx.x] * 2 - (own - value);
  }
  out[blockIdx.x * 128 + threadIdx.x] = value;
}

// Copies that a barrier waits for: bulk copies from sm_90 on.
extern "C" __global__ void copied(const int *x, int *out) {
  __shared__ alignas(16) int tile[512];
  __shared__ block_barrier arrived;
  auto block = cg::this_thread_block();
  if (block.thread_rank() == 0)
    init(&arrived, block.size());
  block.sync();
  cuda::memcpy_async(block, tile, x + blockIdx.x * 512, cuda::aligned_size_t<16>(sizeof tile), arrived);
  arrived.arrive_and_wait();
  for (int i = threadIdx.x; i < 512; i += blockDim.x)
    out[blockIdx.x * 512 + i] = tile[511 - i];
}

// Producer warps fill stages that consumer warps sum.
extern "C" __global__ void pipelined(const int *x, int *out, int rounds) {
  constexpr int STAGES = 2;
  __shared__ alignas(16) int stage[STAGES][64];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, STAGES> state;
  auto block = cg::this_thread_block();
  bool producer = threadIdx.x < 64;
  auto pipe =
      cuda::make_pipeline(block, &state, producer ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer);
  int sum = 0;
  for (int round = 0; round < rounds; round++) {
    if (producer) {
      pipe.producer_acquire();
      cuda::memcpy_async(&stage[round % STAGES][threadIdx.x], x + round * 64 + threadIdx.x, sizeof(int), pipe);
      pipe.producer_commit();
    } else {
      pipe.consumer_wait();
      sum += stage[round % STAGES][(threadIdx.x + 7) % 64] * (round + 1);
      pipe.consumer_release();
    }
  }
  if (!producer)
    out[threadIdx.x - 64] = sum;
}
