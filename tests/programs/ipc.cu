// Two processes share one allocation: each continues the other's work on it, in the order of interprocess events.
#include "vgt_check.h"
#include <sys/wait.h>
#include <unistd.h>

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

template <typename T> static void tell(int fd, const T &value) {
  EXPECT(write(fd, &value, sizeof value) == (ssize_t)sizeof value, "ipc: the other process does not listen");
}

template <typename T> static T hear(int fd) {
  T value;
  EXPECT(read(fd, &value, sizeof value) == (ssize_t)sizeof value, "ipc: the other process is gone");
  return value;
}

enum { OFFSET = 3 }; // where the work begins in the allocation, in elements

// The opening process: it opens the exporter's memory and event, continues after that event, and exports another event.
static int opener(int in, int out, int n) {
  cudaIpcMemHandle_t wrong = {};
  void *nothing = nullptr;
  EXPECT_ERROR(cudaIpcOpenMemHandle(&nothing, wrong, cudaIpcMemLazyEnablePeerAccess), cudaErrorInvalidValue);
  EXPECT(!nothing, "ipc: an address was written by a call that failed");
  cudaGetLastError();
  auto memory = hear<cudaIpcMemHandle_t>(in);
  auto event = hear<cudaIpcEventHandle_t>(in);
  unsigned *data, *again;
  CUDA(cudaIpcOpenMemHandle((void **)&data, memory, cudaIpcMemLazyEnablePeerAccess));
  CUDA(cudaIpcOpenMemHandle((void **)&again, memory, cudaIpcMemLazyEnablePeerAccess));
  EXPECT(data == again, "ipc: opened twice, at two addresses");
  CUDA(cudaIpcCloseMemHandle(again));
  cudaEvent_t before, after;
  CUDA(cudaIpcOpenEventHandle(&before, event));
  CUDA(cudaEventCreateWithFlags(&after, cudaEventDisableTiming | cudaEventInterprocess));
  cudaStream_t stream;
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CUDA(cudaStreamWaitEvent(stream, before, 0));
  step<<<(n + 127) / 128, 128, 0, stream>>>(data + OFFSET, n, 5);
  CUDA(cudaEventRecord(after, stream));
  cudaIpcEventHandle_t handle;
  CUDA(cudaIpcGetEventHandle(&handle, after));
  tell(out, handle);
  hear<char>(in); // the exporting process has checked
  CUDA(cudaIpcCloseMemHandle(data));
  EXPECT_ERROR(cudaIpcCloseMemHandle(data), cudaErrorInvalidValue);
  tell(out, 'c');
  hear<char>(in);
  return 0;
}

int main(int argc, char **argv) {
  vgt_args args = vgt_parse(argc, argv, 10007);
  int n = args.size, to[2], from[2];
  EXPECT(pipe(to) == 0 && pipe(from) == 0, "ipc: no pipes");
  pid_t child = fork(); // before the first CUDA call: a child cannot use its parent's context
  EXPECT(child >= 0, "ipc: no second process");
  if (child == 0)
    _exit(opener(to[0], from[1], n));
  unsigned *data, start = args.seed * 2654435761u;
  CUDA(cudaMalloc(&data, (n + OFFSET) * sizeof *data));
  cudaStream_t stream;
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cudaEvent_t event, other;
  CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
  cudaIpcMemHandle_t memory;
  cudaIpcEventHandle_t handle;
  CUDA(cudaIpcGetMemHandle(&memory, data));
  CUDA(cudaIpcGetEventHandle(&handle, event));
  fill<<<(n + 127) / 128, 128, 0, stream>>>(data + OFFSET, n, start);
  step<<<(n + 127) / 128, 128, 0, stream>>>(data + OFFSET, n, 3);
  CUDA(cudaEventRecord(event, stream));
  tell(to[1], memory);
  tell(to[1], handle);
  CUDA(cudaIpcOpenEventHandle(&other, hear<cudaIpcEventHandle_t>(from[0])));
  CUDA(cudaStreamWaitEvent(stream, other, 0));
  step<<<(n + 127) / 128, 128, 0, stream>>>(data + OFFSET, n, 7);
  std::vector<unsigned> got(n);
  CUDA(cudaMemcpyAsync(got.data(), data + OFFSET, n * sizeof *data, cudaMemcpyDeviceToHost, stream));
  CUDA(cudaStreamSynchronize(stream));
  for (int i = 0; i < n; i++) {
    unsigned expected = (((start + i) * 3 + 1) * 5 + 1) * 7 + 1;
    EXPECT(got[i] == expected, "ipc: element %d is %u, not %u", i, got[i], expected);
  }
  tell(to[1], 'l');
  hear<char>(from[0]); // the opener has closed the memory the memory
  CUDA(cudaEventDestroy(other));
  CUDA(cudaEventDestroy(event));
  CUDA(cudaFree(data));
  tell(to[1], 'e');
  int status;
  EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0,
         "ipc: the second process ended with status %d", status);
  printf("ok ipc n=%d\n", n);
  return 0;
}
