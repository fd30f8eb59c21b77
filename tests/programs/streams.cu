// Order: within a stream, across streams by events, with the legacy default stream, and elapsed time between events.
#include "vgt_check.h"

__global__ void fill(unsigned *data, int n, unsigned value) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    data[i] = value + i;
}

__global__ void step(unsigned *data, int n, unsigned factor) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    data[i] = data[i] * factor + 1;
}

__global__ void add(unsigned *sum, const unsigned *a, const unsigned *b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    sum[i] = a[i] + b[i];
}

int main(int argc, char **argv) {
  vgt_args args = vgt_parse(argc, argv, 10007);
  int n = args.size, blocks = (n + 127) / 128;
  size_t nbytes = n * sizeof(unsigned);
  unsigned *a, *b, *sum, start = args.seed * 2654435761u;
  CUDA(cudaMalloc(&a, nbytes));
  CUDA(cudaMalloc(&b, nbytes));
  CUDA(cudaMalloc(&sum, nbytes));
  int least, greatest;
  CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  EXPECT(greatest <= least, "streams: priorities %d to %d", least, greatest);
  cudaStream_t left, right;
  CUDA(cudaStreamCreateWithFlags(&left, cudaStreamNonBlocking));
  CUDA(cudaStreamCreateWithPriority(&right, cudaStreamNonBlocking, greatest));
  cudaEvent_t first, begin, end, joined;
  CUDA(cudaEventCreateWithFlags(&first, cudaEventDisableTiming));
  CUDA(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
  CUDA(cudaEventCreate(&begin));
  CUDA(cudaEventCreate(&end));

  CUDA(cudaEventRecord(begin, left));
  unsigned expected_a = 0;
  fill<<<blocks, 128, 0, left>>>(a, n, start);
  for (unsigned factor = 3; factor < 20; factor += 2)
    step<<<blocks, 128, 0, left>>>(a, n, factor);
  CUDA(cudaEventRecord(first, left));
  CUDA(cudaStreamWaitEvent(right, first, 0));
  CUDA(cudaMemcpyAsync(b, a, nbytes, cudaMemcpyDeviceToDevice, right));
  step<<<blocks, 128, 0, right>>>(b, n, 7);
  CUDA(cudaEventRecord(joined, right));
  CUDA(cudaStreamWaitEvent(left, joined, 0));
  add<<<blocks, 128, 0, left>>>(sum, a, b, n);
  CUDA(cudaEventRecord(end, left));
  CUDA(cudaGetLastError());
  CUDA(cudaEventSynchronize(end));
  CUDA(cudaEventQuery(joined));
  CUDA(cudaStreamQuery(left));
  std::vector<unsigned> got = vgt_download(sum, n);
  for (int i = 0; i < n; i++) {
    expected_a = start + i;
    for (unsigned factor = 3; factor < 20; factor += 2)
      expected_a = expected_a * factor + 1;
    unsigned expected = expected_a + expected_a * 7 + 1;
    EXPECT(got[i] == expected, "streams: element %d is %u instead of %u", i, got[i], expected);
  }
  float elapsed_ms = -1;
  CUDA(cudaEventElapsedTime(&elapsed_ms, begin, end));
  EXPECT(elapsed_ms > 0 && elapsed_ms < 60000, "streams: elapsed %g ms", elapsed_ms);
  EXPECT_ERROR(cudaEventElapsedTime(&elapsed_ms, first, end), cudaErrorInvalidResourceHandle);
  EXPECT(cudaGetLastError() == cudaErrorInvalidResourceHandle, "streams: the error was not kept");

  // A blocking stream and the legacy default stream wait for each other without any event. The program names the legacy
  // stream, because the default stream of a program compiled for per-thread default streams does not wait.
  cudaStream_t blocking;
  CUDA(cudaStreamCreate(&blocking));
  fill<<<blocks, 128, 0, blocking>>>(a, n, 5);
  step<<<blocks, 128, 0, cudaStreamLegacy>>>(a, n, 2);
  step<<<blocks, 128, 0, blocking>>>(a, n, 3);
  CUDA(cudaGetLastError());
  CUDA(cudaStreamSynchronize(blocking));
  got = vgt_download(a, n);
  for (int i = 0; i < n; i++) {
    unsigned expected = ((5u + i) * 2 + 1) * 3 + 1;
    EXPECT(got[i] == expected, "streams: default stream: element %d is %u instead of %u", i, got[i], expected);
  }
  for (cudaStream_t stream : {left, right, blocking})
    CUDA(cudaStreamDestroy(stream));
  for (cudaEvent_t event : {first, begin, end, joined})
    CUDA(cudaEventDestroy(event));
  for (unsigned *device : {a, b, sum})
    CUDA(cudaFree(device));
  printf("ok streams n=%d elapsed_ms=%.3f\n", n, elapsed_ms);
  return 0;
}
