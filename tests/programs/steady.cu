// Steps like those of a training, `steady [seed [steps [reads [pieces]]]]`: kernels in two streams, fills, copies from
// pageable memory and on the device, events. No call in a step needs a reply; after the steps, `reads` reads copy one
// number back each, and one copies `pieces` MB. Over a network, a step costs no round trip, each read costs one, and so
// does the copy up to 32 MB (tests/shim/test_round_trips.py).
#include "vgt_check.h"

__global__ void add(int *sum, const int *values, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    sum[i] += values[i];
}

int main(int argc, char **argv) {
  vgt_args args = vgt_parse(argc, argv, 7);
  int n = 1000, reads = argc > 3 ? atoi(argv[3]) : 3, limit;
  int *batch, *kept, *sum;
  std::vector<int> data(n);
  cudaStream_t main_stream, side;
  cudaEvent_t ready, done;
  CUDA(cudaStreamCreateWithFlags(&main_stream, cudaStreamNonBlocking));
  CUDA(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
  CUDA(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming));
  CUDA(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
  CUDA(cudaMalloc(&batch, n * sizeof(int)));
  CUDA(cudaMalloc(&kept, n * sizeof(int)));
  CUDA(cudaMalloc(&sum, n * sizeof(int)));
  CUDA(cudaMemset(sum, 0, n * sizeof(int)));
  CUDA(cudaDeviceSynchronize());
  for (int step = 0; step < args.size; step++) {
    size_t stack;
    CUDA(cudaDeviceGetLimit(&stack, cudaLimitStackSize)); // cuBLAS queries this before each product
    CUDA(cudaDeviceGetAttribute(&limit, cudaDevAttrMultiProcessorCount, 0));
    for (int i = 0; i < n; i++)
      data[i] = step + i;
    CUDA(cudaMemcpyAsync(batch, data.data(), n * sizeof(int), cudaMemcpyHostToDevice, main_stream));
    CUDA(cudaMemsetAsync(kept, 0, n * sizeof(int), main_stream));
    add<<<1, 128, 0, main_stream>>>(kept, batch, n);
    CUDA(cudaEventRecord(ready, main_stream));
    CUDA(cudaStreamWaitEvent(side, ready, 0));
    add<<<1, 128, 0, side>>>(sum, kept, n);
    CUDA(cudaEventRecord(done, side));
    CUDA(cudaStreamWaitEvent(main_stream, done, 0));
    CUDA(cudaMemcpyAsync(batch, kept, n * sizeof(int), cudaMemcpyDeviceToDevice, main_stream));
  }
  for (int i = 0; i < reads; i++) { // like item() of PyTorch
    int value = 0;
    CUDA(cudaMemcpyAsync(&value, sum + i, sizeof value, cudaMemcpyDeviceToHost, side));
    CUDA(cudaStreamSynchronize(side));
    int expected = args.size * (args.size - 1) / 2 + args.size * i;
    EXPECT(value == expected, "steady: element %d is %d instead of %d", i, value, expected);
  }
  size_t pieces = argc > 4 ? atoi(argv[4]) : 2;
  if (pieces) {
    size_t nbytes = (pieces << 20) - 4; // the last piece is shorter
    int *large;
    std::vector<int> back(nbytes / sizeof(int));
    CUDA(cudaMalloc(&large, nbytes));
    for (size_t i = 0; i < pieces; i++)
      CUDA(cudaMemsetAsync(large + (i << 18), (int)i + 1, i + 1 < pieces ? 1 << 20 : (1 << 20) - 4, side));
    CUDA(cudaMemcpyAsync(back.data(), large, nbytes, cudaMemcpyDeviceToHost, side));
    for (size_t i = 0; i < back.size(); i++)
      EXPECT(back[i] == (int)((i >> 18) + 1) * 0x01010101, "steady: word %zu of the copy is %#x", i, back[i]);
    CUDA(cudaFree(large));
  }
  CUDA(cudaDeviceSynchronize());
  printf("ok steady steps=%d reads=%d\n", args.size, reads);
  return 0;
}
