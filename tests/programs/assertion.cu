// A device assertion that fails in some threads of the second block: each of these threads prints a line, as natively.
#include <cassert>

#include "vgt_check.h"

__global__ void below(int n) {
  assert((int)(blockIdx.x * blockDim.x * blockDim.y + threadIdx.y * blockDim.x + threadIdx.x) < n);
}

int main() {
  below<<<2, dim3(8, 8)>>>(124);
  EXPECT_ERROR(cudaDeviceSynchronize(), cudaErrorAssert);
  printf("ok assertion\n");
  return 0;
}
