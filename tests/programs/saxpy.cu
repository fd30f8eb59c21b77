// y = a x + y, on a size that is not a multiple of the block.
#include "vgt_check.h"

__global__ void saxpy(int n, float a, const float *x, float *y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    y[i] = a * x[i] + y[i];
}

int main(int argc, char **argv) {
  vgt_args args = vgt_parse(argc, argv, 100003);
  std::mt19937 random(args.seed);
  int n = args.size;
  std::vector<float> x = vgt_floats(random, n), y = vgt_floats(random, n);
  float a = 3.0f;
  float *dx = vgt_upload(x), *dy = vgt_upload(y);
  saxpy<<<(n + 255) / 256, 256>>>(n, a, dx, dy);
  CUDA(cudaGetLastError());
  std::vector<float> result = vgt_download(dy, n);
  for (int i = 0; i < n; i++)
    EXPECT(result[i] == a * x[i] + y[i], "saxpy: element %d is %g instead of %g", i, result[i], a * x[i] + y[i]);
  CUDA(cudaFree(dx));
  CUDA(cudaFree(dy));
  printf("ok saxpy n=%d\n", n);
  return 0;
}
