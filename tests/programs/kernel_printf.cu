// printf in a kernel: the lines must be on stdout once the program has synchronised, before what the host prints next.
// The program cannot see its own output: the test reads it (test_programs.py).
#include "vgt_check.h"

__global__ void hello(unsigned seed) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  printf("thread %d of %u: %s %5.2f %c 0x%llx %%\n", i, seed, i % 2 ? "odd" : "even", 0.25 * i, 'a' + i % 26,
         (unsigned long long)i << 33);
}

int main(int argc, char **argv) {
  vgt_args args = vgt_parse(argc, argv, 3);
  hello<<<args.size, 32>>>(args.seed);
  CUDA(cudaGetLastError());
  CUDA(cudaDeviceSynchronize());
  printf("synchronised\n");
  hello<<<1, 1>>>(args.seed + 1);
  CUDA(cudaDeviceSynchronize());
  printf("ok kernel_printf blocks=%d\n", args.size);
  return 0;
}
