// Errors that a call reports at once and that leave the context usable, and an illegal address, which ends the
// context. Each code is what runtime 13.0 returns on driver 580.159 with an H100.
#include "vgt_check.h"

__global__ void increment(int *data) { data[threadIdx.x]++; }

__global__ void wild(int *data, size_t far) { data[far] = 1; }

int main(int argc, char **argv) {
  vgt_args args = vgt_parse(argc, argv, 32);
  int *data = nullptr, *none = nullptr;
  CUDA(cudaMalloc(&data, 1024 * sizeof(int)));
  CUDA(cudaMemset(data, 0, 1024 * sizeof(int)));

  // Errors that are reported at once and are not sticky.
  increment<<<1, 2048>>>(data);
  EXPECT_ERROR(cudaPeekAtLastError(), cudaErrorInvalidValue);
  EXPECT_ERROR(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_ERROR(cudaGetLastError(), cudaSuccess);
  increment<<<0, 32>>>(data);
  EXPECT_ERROR(cudaGetLastError(), cudaErrorInvalidValue);
  increment<<<1, 32, 1 << 20>>>(data);
  EXPECT_ERROR(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_ERROR(cudaMalloc(&none, (size_t)1 << 50), cudaErrorMemoryAllocation);
  EXPECT(none == nullptr, "errors: a failed allocation wrote its result");
  EXPECT_ERROR(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_ERROR(cudaSetDevice(64), cudaErrorInvalidDevice);
  EXPECT_ERROR(cudaMemcpy(data, &none, (size_t)1 << 40, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_ERROR(cudaFree((char *)data + 4), cudaErrorInvalidValue);
  cudaGetLastError();

  // The context is still usable.
  increment<<<1, args.size>>>(data);
  CUDA(cudaDeviceSynchronize());
  int value = 0;
  CUDA(cudaMemcpy(&value, data + args.size - 1, sizeof value, cudaMemcpyDeviceToHost));
  EXPECT(value == 1, "errors: %d after one good launch", value);

  // An asynchronous and sticky error: every later call returns the same error, and copies return no data.
  wild<<<1, 1>>>(data, (size_t)1 << 44);
  EXPECT_ERROR(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  EXPECT_ERROR(cudaMemcpy(&value, data, sizeof value, cudaMemcpyDeviceToHost), cudaErrorIllegalAddress);
  EXPECT_ERROR(cudaMalloc(&none, 16), cudaErrorIllegalAddress);
  EXPECT_ERROR(cudaGetLastError(), cudaErrorIllegalAddress);
  // cudaGetLastError has reset the runtime's last error; the context is lost all the same.
  EXPECT_ERROR(cudaGetLastError(), cudaSuccess);
  EXPECT_ERROR(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  printf("ok errors\n");
  return 0;
}
