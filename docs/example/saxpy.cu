// y = a x + y, as everybody's first CUDA program has it. With -DBUG a thread writes outside the array.
#include <cstdio>

__global__ void saxpy(int n, float a, const float *x, float *y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef BUG
  y[i * 1000] = a * x[i] + n;
#else
  if (i < n)
    y[i] = a * x[i] + y[i];
#endif
}

int main() {
  const int n = 1000;
  float x[n], y[n], *dx, *dy;
  for (int i = 0; i < n; i++)
    x[i] = 1.0f, y[i] = 2.0f;
  cudaMalloc(&dx, sizeof x);
  cudaMalloc(&dy, sizeof y);
  cudaMemcpy(dx, x, sizeof x, cudaMemcpyHostToDevice);
  cudaMemcpy(dy, y, sizeof y, cudaMemcpyHostToDevice);
  saxpy<<<(n + 255) / 256, 256>>>(n, 3.0f, dx, dy);
  cudaError_t error = cudaMemcpy(y, dy, sizeof y, cudaMemcpyDeviceToHost);
  printf("%s: y[0] = %.1f\n", cudaGetErrorString(error), y[0]);
  return error != cudaSuccess;
}
