// Blocks that wait for any other block without a cooperative launch, as cuSPARSE's solvers do: the device runs all of
// them at once. A barrier of the grid made of one counter, and a chain from the last block to the first; then a fault
// of one block while the other blocks wait, which must still be reported.
#include "vgt_check.h"

enum { THREADS = 64, BLOCKS = 40 };

__device__ unsigned turn;

// Each round computes from what the neighbouring block wrote in the previous round, through shared memory.
__global__ void rounds(unsigned *a, unsigned *b, unsigned *counter, int count) {
  extern __shared__ unsigned tile[];
  for (int round = 0; round < count; round++) {
    unsigned from = (blockIdx.x + 1) % gridDim.x * THREADS + threadIdx.x;
    tile[threadIdx.x] = ((volatile unsigned *)a)[from];
    __syncthreads();
    b[blockIdx.x * THREADS + threadIdx.x] = tile[THREADS - 1 - threadIdx.x] * 3 + blockIdx.x;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      atomicAdd(counter, 1);
      while (*(volatile unsigned *)counter < gridDim.x * (round + 1))
        ;
    }
    __syncthreads();
    unsigned *swap = a;
    a = b;
    b = swap;
  }
}

__global__ void from_the_last(unsigned *order) {
  if (threadIdx.x == 0) {
    while (*(volatile unsigned *)&turn != gridDim.x - 1 - blockIdx.x)
      ;
    order[turn] = blockIdx.x;
    __threadfence();
    atomicAdd(&turn, 1);
  }
}

__global__ void too_far(unsigned *order, unsigned *never) {
  extern __shared__ unsigned tile[];
  if (blockIdx.x == 7)
    order[1ull << 40] = 1;
  tile[threadIdx.x] = 1;
  while (*(volatile unsigned *)never == 0)
    ;
}

// Other blocks see a lane's vector store whole, as NCCL requires: a flag in the vector says that its data have arrived.
__global__ void whole(unsigned *at, unsigned count, unsigned *torn) {
  unsigned *mine = at + 4 * threadIdx.x, *back = mine + 4 * blockDim.x, a, b, c, d;
  for (unsigned i = 1; i <= count; i++) {
    if (blockIdx.x == 0)
      asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(mine), "r"(i * 5), "r"(i), "r"(~i),
                   "r"(i));
    do
      asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                   : "l"(blockIdx.x == 0 ? back : mine));
    while (b != i && d != i);
    if (a != i * 5 || b != i || c != ~i || d != i)
      atomicAdd(torn, 1);
    if (blockIdx.x == 1)
      asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(back), "r"(i * 5), "r"(i), "r"(~i),
                   "r"(i));
  }
}

int main(int argc, char **argv) {
  vgt_args args = vgt_parse(argc, argv, 4);
  std::mt19937 random(args.seed);
  int size = BLOCKS * THREADS, count = args.size;
  std::vector<unsigned> values = vgt_words(random, size), next(size), zero(1);
  unsigned *a = vgt_upload(values), *b = vgt_upload(values), *counter = vgt_upload(zero);
  // Dynamic shared memory of 20 KB: room for two blocks on a multiprocessor of every device.
  rounds<<<BLOCKS, THREADS, 20 << 10>>>(a, b, counter, count);
  for (int round = 0; round < count; round++) {
    for (int i = 0; i < size; i++)
      next[i] = values[(i / THREADS + 1) % BLOCKS * THREADS + THREADS - 1 - i % THREADS] * 3 + i / THREADS;
    values = next;
  }
  EXPECT(vgt_download(count % 2 ? b : a, size) == values, "waiting_blocks: rounds of a barrier: wrong values");
  from_the_last<<<BLOCKS, 32>>>(a);
  std::vector<unsigned> order = vgt_download(a, BLOCKS);
  for (unsigned i = 0; i < BLOCKS; i++)
    EXPECT(order[i] == BLOCKS - 1 - i, "waiting_blocks: block %u came at %u", order[i], i);
  CUDA(cudaMemset(a, 0, size * sizeof *a));
  CUDA(cudaMemset(counter, 0, sizeof *counter));
  whole<<<2, 32>>>(a, 20000, counter);
  unsigned torn = vgt_download(counter, 1)[0];
  EXPECT(torn == 0, "waiting_blocks: %u vectors were seen in part", torn);
  CUDA(cudaMemset(counter, 0, sizeof *counter));
  too_far<<<BLOCKS, THREADS, THREADS * sizeof(unsigned)>>>(a, counter);
  EXPECT_ERROR(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  printf("ok waiting_blocks: %d blocks, %d rounds\n", BLOCKS, count);
}
