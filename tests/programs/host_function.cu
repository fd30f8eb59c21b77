// Host functions in stream order: each sees what the copies before it wrote, and later work sees what it wrote.
#include <atomic>

#include "vgt_check.h"

__global__ void double_all(unsigned *data, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    data[i] *= 2;
}

struct stage {
  unsigned *host;
  int n;
  std::atomic<int> calls;
};

static void add_one(void *argument) {
  stage *state = (stage *)argument;
  for (int i = 0; i < state->n; i++)
    state->host[i]++;
  state->calls++;
}

static void after(cudaStream_t, cudaError_t status, void *argument) {
  if (status == cudaSuccess)
    ((stage *)argument)->calls += 100;
}

int main(int argc, char **argv) {
  vgt_args args = vgt_parse(argc, argv, 3001);
  std::mt19937 random(args.seed);
  int n = args.size, rounds = 5;
  size_t nbytes = n * sizeof(unsigned);
  cudaStream_t stream;
  CUDA(cudaStreamCreate(&stream));
  stage state = {nullptr, n, {0}};
  unsigned *device = nullptr;
  CUDA(cudaMallocHost(&state.host, nbytes));
  CUDA(cudaMalloc(&device, nbytes));
  std::vector<unsigned> values = vgt_words(random, n);
  for (int i = 0; i < n; i++)
    state.host[i] = values[i];
  for (int round = 0; round < rounds; round++) {
    CUDA(cudaMemcpyAsync(device, state.host, nbytes, cudaMemcpyHostToDevice, stream));
    double_all<<<(n + 127) / 128, 128, 0, stream>>>(device, n);
    CUDA(cudaMemcpyAsync(state.host, device, nbytes, cudaMemcpyDeviceToHost, stream));
    CUDA(cudaLaunchHostFunc(stream, add_one, &state));
  }
  CUDA(cudaStreamAddCallback(stream, after, &state, 0));
  CUDA(cudaStreamSynchronize(stream));
  EXPECT(state.calls == rounds + 100, "host_function: %d calls", (int)state.calls);
  for (int i = 0; i < n; i++) {
    unsigned expected = values[i];
    for (int round = 0; round < rounds; round++)
      expected = expected * 2 + 1;
    EXPECT(state.host[i] == expected, "host_function: element %d is %u instead of %u", i, state.host[i], expected);
  }
  CUDA(cudaFreeHost(state.host));
  CUDA(cudaFree(device));
  CUDA(cudaStreamDestroy(stream));
  printf("ok host_function n=%d\n", n);
  return 0;
}
