// Stream-ordered allocation: from the default pool and from a pool that the program creates, attributes of pools, and
// reuse of memory.
#include "vgt_check.h"

__global__ void square(const unsigned *in, unsigned *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    out[i] = in[i] * in[i];
}

static void round_trip(cudaStream_t stream, cudaMemPool_t pool, const std::vector<unsigned> &values) {
  int n = (int)values.size();
  size_t nbytes = n * sizeof(unsigned);
  unsigned *in = nullptr, *out = nullptr;
  if (pool) {
    CUDA(cudaMallocFromPoolAsync(&in, nbytes, pool, stream));
    CUDA(cudaMallocFromPoolAsync(&out, nbytes, pool, stream));
  } else {
    CUDA(cudaMallocAsync(&in, nbytes, stream));
    CUDA(cudaMallocAsync(&out, nbytes, stream));
  }
  CUDA(cudaMemcpyAsync(in, values.data(), nbytes, cudaMemcpyHostToDevice, stream));
  square<<<(n + 63) / 64, 64, 0, stream>>>(in, out, n);
  CUDA(cudaGetLastError());
  CUDA(cudaFreeAsync(in, stream));
  std::vector<unsigned> got(n);
  CUDA(cudaMemcpyAsync(got.data(), out, nbytes, cudaMemcpyDeviceToHost, stream));
  CUDA(cudaFreeAsync(out, stream));
  CUDA(cudaStreamSynchronize(stream));
  for (int i = 0; i < n; i++)
    EXPECT(got[i] == values[i] * values[i], "pools: element %d is %u instead of %u", i, got[i], values[i] * values[i]);
}

int main(int argc, char **argv) {
  vgt_args args = vgt_parse(argc, argv, 5003);
  std::mt19937 random(args.seed);
  int supported = 0;
  CUDA(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, 0));
  EXPECT(supported == 1, "pools: the device says that it has none");
  cudaStream_t stream;
  CUDA(cudaStreamCreate(&stream));
  for (int i = 0; i < 5; i++)
    round_trip(stream, nullptr, vgt_words(random, args.size + 13 * i));

  cudaMemPool_t standard, own;
  CUDA(cudaDeviceGetDefaultMemPool(&standard, 0));
  cudaMemPoolProps props = {};
  props.allocType = cudaMemAllocationTypePinned;
  props.location.type = cudaMemLocationTypeDevice;
  props.location.id = 0;
  CUDA(cudaMemPoolCreate(&own, &props));
  EXPECT(own != standard, "pools: a new pool is the default pool");
  unsigned long long threshold = 1ull << 24, got = 0;
  CUDA(cudaMemPoolSetAttribute(own, cudaMemPoolAttrReleaseThreshold, &threshold));
  CUDA(cudaMemPoolGetAttribute(own, cudaMemPoolAttrReleaseThreshold, &got));
  EXPECT(got == threshold, "pools: threshold %llu instead of %llu", got, threshold);
  for (int i = 0; i < 5; i++)
    round_trip(stream, own, vgt_words(random, args.size + 7 * i));
  CUDA(cudaMemPoolGetAttribute(own, cudaMemPoolAttrUsedMemCurrent, &got));
  EXPECT(got == 0, "pools: %llu bytes in use after all was freed", got);
  CUDA(cudaMemPoolTrimTo(own, 0));
  CUDA(cudaMemPoolDestroy(own));
  CUDA(cudaStreamDestroy(stream));
  printf("ok pools n=%d\n", args.size);
  return 0;
}
