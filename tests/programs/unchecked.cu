// A program that checks no error before its last call, as tutorials do. It must never get a wrong result without an
// error: it prints `ok` for the right result, and `told` when the last call fails.
#include "vgt_check.h"

__global__ void square(int *data, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    data[i] = data[i] * data[i] + 1;
}

int main() {
  const int n = 1000;
  std::vector<int> values(n), back(n, -1);
  for (int i = 0; i < n; i++)
    values[i] = i;
  int *data = nullptr;
  cudaMalloc(&data, n * sizeof(int));
  cudaMemcpy(data, values.data(), n * sizeof(int), cudaMemcpyHostToDevice);
  square<<<(n + 255) / 256, 256>>>(data, n);
  cudaError_t last = cudaMemcpy(back.data(), data, n * sizeof(int), cudaMemcpyDeviceToHost);
  if (last != cudaSuccess) {
    printf("told unchecked: %s\n", cudaGetErrorName(last));
    return 3;
  }
  for (int i = 0; i < n; i++)
    EXPECT(back[i] == i * i + 1, "unchecked: element %d is %d", i, back[i]);
  printf("ok unchecked\n");
  return 0;
}
