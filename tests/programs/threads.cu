// Sixteen host threads run at once, each with its own stream, memory and data.
#include <thread>

#include "vgt_check.h"

constexpr int THREADS = 16, ROUNDS = 8;

__global__ void mix(const unsigned *in, unsigned *out, int n, unsigned key) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    out[i] = (in[i] ^ key) * 16777619u;
}

static void work(unsigned seed, int n) {
  std::mt19937 random(seed);
  size_t nbytes = n * sizeof(unsigned);
  CUDA(cudaSetDevice(0));
  cudaStream_t stream;
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  unsigned *a = nullptr, *b = nullptr;
  CUDA(cudaMalloc(&a, nbytes));
  CUDA(cudaMalloc(&b, nbytes));
  for (int round = 0; round < ROUNDS; round++) {
    std::vector<unsigned> values = vgt_words(random, n), got(n);
    unsigned key = random();
    CUDA(cudaMemcpyAsync(a, values.data(), nbytes, cudaMemcpyHostToDevice, stream));
    mix<<<(n + 127) / 128, 128, 0, stream>>>(a, b, n, key);
    mix<<<(n + 127) / 128, 128, 0, stream>>>(b, a, n, key + 1);
    CUDA(cudaGetLastError());
    CUDA(cudaMemcpyAsync(got.data(), a, nbytes, cudaMemcpyDeviceToHost, stream));
    CUDA(cudaStreamSynchronize(stream));
    for (int i = 0; i < n; i++) {
      unsigned expected = (((values[i] ^ key) * 16777619u) ^ (key + 1)) * 16777619u;
      EXPECT(got[i] == expected, "threads: seed %u round %d: element %d is %u instead of %u", seed, round, i, got[i],
             expected);
    }
  }
  CUDA(cudaFree(a));
  CUDA(cudaFree(b));
  CUDA(cudaStreamDestroy(stream));
}

// The only stream with work is destroyed before the work is done, and a thread that did not launch the work waits.
static void destroyed(int n) {
  std::vector<unsigned> values(n, 5);
  unsigned *a = vgt_upload(values), *b = vgt_upload(values);
  cudaStream_t stream;
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CUDA(cudaDeviceSynchronize());
  std::thread([=] { mix<<<(n + 127) / 128, 128, 0, stream>>>(a, b, n, 1); }).join();
  CUDA(cudaStreamDestroy(stream));
  CUDA(cudaDeviceSynchronize());
  EXPECT(vgt_download(b, n)[n - 1] == (5 ^ 1) * 16777619u, "threads: a destroyed stream's work");
  CUDA(cudaFree(a));
  CUDA(cudaFree(b));
}

int main(int argc, char **argv) {
  vgt_args args = vgt_parse(argc, argv, 2003);
  std::vector<std::thread> threads;
  for (int i = 0; i < THREADS; i++)
    threads.emplace_back(work, args.seed * 1000 + i, args.size + i);
  for (std::thread &thread : threads)
    thread.join();
  CUDA(cudaDeviceSynchronize());
  destroyed(args.size);
  printf("ok threads n=%d threads=%d\n", args.size, THREADS);
  return 0;
}
