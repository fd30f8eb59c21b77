// __managed__ variables (NR09): host and device change them in turn, with a synchronisation between, and copies use
// them as source and destination.
#include "vgt_check.h"

__managed__ int counter = 5;
__managed__ int table[3000];
__managed__ double ratio = 0.5;

__global__ void step(int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    table[i] = table[i] * 2 + counter;
  __syncthreads();
  if (threadIdx.x == 0) {
    counter += 1;
    ratio *= 2;
  }
}

int main(int argc, char **argv) {
  vgt_args args = vgt_parse(argc, argv, 2999);
  int n = args.size < 3000 ? args.size : 3000;
  EXPECT(counter == 5 && ratio == 0.5 && table[n - 1] == 0, "managed_variable: at first %d", counter);
  for (int i = 0; i < n; i++)
    table[i] = i;
  cudaStream_t stream;
  CUDA(cudaStreamCreate(&stream));
  std::vector<int> expected(n);
  for (int i = 0; i < n; i++)
    expected[i] = i;
  int count = 5;
  for (int turn = 0; turn < 6; turn++) {
    step<<<1, 128, 0, turn & 1 ? stream : 0>>>(n);
    CUDA(turn & 1 ? cudaStreamSynchronize(stream) : cudaDeviceSynchronize());
    for (int &value : expected)
      value = value * 2 + count;
    count++;
    EXPECT(counter == count, "managed_variable: turn %d: %d instead of %d", turn, counter, count);
    for (int i = 0; i < n; i++)
      EXPECT(table[i] == expected[i], "managed_variable: turn %d: element %d is %d instead of %d", turn, i, table[i],
             expected[i]);
    counter += 10; // the host's turn
    table[n / 2] = -turn;
    count += 10;
    expected[n / 2] = -turn;
  }
  EXPECT(ratio == 32, "managed_variable: a ratio of %g", ratio);
  step<<<1, 128>>>(n); // a copy waits for the kernel and reads its result
  int copied = 0;
  CUDA(cudaMemcpy(&copied, &counter, sizeof copied, cudaMemcpyDefault));
  EXPECT(copied == count + 1, "managed_variable: a copy reads %d instead of %d", copied, count + 1);
  copied = 70;
  CUDA(cudaMemcpy(&counter, &copied, sizeof copied, cudaMemcpyDefault));
  step<<<1, 128>>>(n);
  cudaEvent_t done;
  CUDA(cudaEventCreate(&done));
  CUDA(cudaEventRecord(done));
  CUDA(cudaEventSynchronize(done));
  EXPECT(counter == 71, "managed_variable: after an event %d", counter);
  CUDA(cudaEventDestroy(done));
  CUDA(cudaStreamDestroy(stream));
  printf("ok managed_variable n=%d\n", n);
  return 0;
}
