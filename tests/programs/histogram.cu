// A histogram of 256 bins: counted in shared memory and then added to global memory, and also in global memory alone;
// with a floating-point sum, a compare-and-swap loop and an exchange.
#include "vgt_check.h"

__global__ void histogram_shared(const unsigned char *bytes, int n, unsigned *bins) {
  __shared__ unsigned local[256];
  for (int bin = threadIdx.x; bin < 256; bin += blockDim.x)
    local[bin] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    atomicAdd(&local[bytes[i]], 1u);
  __syncthreads();
  for (int bin = threadIdx.x; bin < 256; bin += blockDim.x)
    if (local[bin])
      atomicAdd(&bins[bin], local[bin]);
}

__global__ void histogram_global(const unsigned char *bytes, int n, unsigned *bins) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    atomicAdd(&bins[bytes[i]], 1u);
}

// exchanged[0] is the last index exchanged in, exchanged[1] the sum of the indices exchanged out.
__global__ void others(const unsigned char *bytes, int n, float *sum, unsigned *parity, unsigned *exchanged) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  atomicAdd(sum, (float)(bytes[i] & 3));
  unsigned seen = *parity, assumed;
  do {
    assumed = seen;
    seen = atomicCAS(parity, assumed, assumed ^ bytes[i]);
  } while (seen != assumed);
  unsigned before = atomicExch(&exchanged[0], (unsigned)i + 1);
  atomicAdd(&exchanged[1], before);
}

int main(int argc, char **argv) {
  vgt_args args = vgt_parse(argc, argv, 70001);
  std::mt19937 random(args.seed);
  int n = args.size;
  std::vector<unsigned char> bytes(n);
  std::vector<unsigned> expected(256, 0);
  unsigned parity = 0;
  float sum = 0;
  for (unsigned char &byte : bytes) {
    byte = (unsigned char)(random() % 256 & random() % 256);
    expected[byte]++;
    parity ^= byte;
    sum += (float)(byte & 3);
  }
  unsigned char *device = vgt_upload(bytes);
  unsigned *bins = nullptr;
  CUDA(cudaMalloc(&bins, 256 * sizeof *bins));
  for (int way = 0; way < 2; way++) {
    CUDA(cudaMemset(bins, 0, 256 * sizeof *bins));
    if (way == 0)
      histogram_shared<<<7, 96>>>(device, n, bins);
    else
      histogram_global<<<(n + 127) / 128, 128>>>(device, n, bins);
    CUDA(cudaGetLastError());
    std::vector<unsigned> counted = vgt_download(bins, 256);
    for (int bin = 0; bin < 256; bin++)
      EXPECT(counted[bin] == expected[bin], "histogram: %s bin %d holds %u instead of %u", way ? "global" : "shared",
             bin, counted[bin], expected[bin]);
  }
  struct {
    float sum;
    unsigned parity, last, total;
  } got, *other = nullptr;
  CUDA(cudaMalloc(&other, sizeof got));
  CUDA(cudaMemset(other, 0, sizeof got));
  others<<<(n + 127) / 128, 128>>>(device, n, &other->sum, &other->parity, &other->last);
  CUDA(cudaGetLastError());
  CUDA(cudaMemcpy(&got, other, sizeof got, cudaMemcpyDeviceToHost));
  EXPECT(got.sum == sum, "histogram: float sum %g instead of %g", got.sum, sum);
  EXPECT(got.parity == parity, "histogram: parity %u instead of %u", got.parity, parity);
  // Every index is exchanged in once; all but the last one are exchanged out again.
  unsigned total = 0;
  for (int i = 0; i < n; i++)
    total += (unsigned)i + 1;
  EXPECT(got.total + got.last == total, "histogram: exchanges lost a value (%u + %u != %u)", got.total, got.last,
         total);
  CUDA(cudaFree(device));
  CUDA(cudaFree(bins));
  CUDA(cudaFree(other));
  printf("ok histogram n=%d\n", n);
  return 0;
}
