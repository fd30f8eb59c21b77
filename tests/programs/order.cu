// Order and visibility as programs rely on them: what comes first in a stream, across streams, events, threads and
// between the device and the host. A kernel that the host holds back is used instead of delays, so that nothing here
// depends on how fast the machine is.
#include <chrono>
#include <cstring>
#include <thread>

#include "vgt_check.h"

static const int n = 1 << 18, LATE_MS = 150000;
static int *device, *pinned, *out, *gate; // kernels access `gate` and `out` in place
static cudaStream_t a, b, free_standing;

__global__ void hold(volatile int *flag) {
  while (!*flag)
    ;
}
__global__ void set(int *p, int v, int count) {
  for (int i = threadIdx.x; i < count; i += blockDim.x)
    p[i] = v;
}
__global__ void add(int *p, int v) { *p += v; }
__global__ void times(int *p, int v) { *p *= v; }
__global__ void answer(volatile int *flag, volatile int *data, int *seen) {
  while (!*flag)
    ;
  *seen = *data;
}
__global__ void raise_flag(volatile int *flag, volatile int *data) {
  *data = 42;
  __threadfence_system();
  *flag = 1;
}

static int at(const int *p) {
  int value;
  CUDA(cudaMemcpy(&value, p, sizeof value, cudaMemcpyDeviceToHost));
  return value;
}

static void start(int value) {
  CUDA(cudaDeviceSynchronize());
  CUDA(cudaMemset(device, 0, n * sizeof(int)));
  set<<<1, 1>>>(device, value, 1);
  CUDA(cudaDeviceSynchronize());
  *(volatile int *)gate = 0;
}

static void open_gate() { *(volatile int *)gate = 1; }

// Pageable sources of asynchronous copies may be changed as soon as the call has returned.
static void sources_are_the_programs() {
  for (size_t count : {64ul, 4096ul, 16384ul, 65536ul, (size_t)n}) {
    std::vector<int> source(count, 5), back(count);
    start(0);
    hold<<<1, 1>>>(gate);
    CUDA(cudaMemcpyAsync(device, source.data(), count * sizeof(int), cudaMemcpyHostToDevice, 0));
    for (int &value : source)
      value = 6;
    open_gate();
    CUDA(cudaMemcpy(back.data(), device, count * sizeof(int), cudaMemcpyDeviceToHost));
    for (int value : back)
      EXPECT(value == 5, "order: a source of %zu words was read after the copy had returned", count);
  }
  std::vector<int> one(500), back(500);
  start(0);
  for (int i = 0; i < 500; i++) {
    one[i] = i + 1;
    CUDA(cudaMemcpyAsync(device + i, &one[i], sizeof(int), cudaMemcpyHostToDevice, i % 2 ? a : b));
    one[i] = -1;
  }
  CUDA(cudaDeviceSynchronize());
  CUDA(cudaMemcpy(back.data(), device, 500 * sizeof(int), cudaMemcpyDeviceToHost));
  for (int i = 0; i < 500; i++)
    EXPECT(back[i] == i + 1, "order: tiny copy %d brought %d", i, back[i]);
  start(0); // pinned memory is read when the copy executes
  pinned[0] = 1;
  hold<<<1, 1>>>(gate);
  CUDA(cudaMemcpyAsync(device, pinned, sizeof(int), cudaMemcpyHostToDevice, 0));
  ((volatile int *)pinned)[0] = 2;
  open_gate();
  EXPECT(at(device) == 2, "order: pinned memory was read before the copy's turn");
}

static void streams() {
  start(1);
  hold<<<1, 1, 0, a>>>(gate);
  set<<<1, 1, 0, a>>>(device, 7, 1);
  add<<<1, 1>>>(device, 1);
  open_gate();
  EXPECT(at(device) == 8, "order: the NULL stream did not wait for a blocking stream");
  start(1);
  hold<<<1, 1>>>(gate);
  set<<<1, 1>>>(device, 7, 1);
  add<<<1, 1, 0, b>>>(device, 1);
  open_gate();
  CUDA(cudaStreamSynchronize(b));
  EXPECT(at(device) == 8, "order: a blocking stream did not wait for the NULL stream");
  start(1);
  hold<<<1, 1>>>(gate);
  set<<<1, 1, 0, free_standing>>>(out, 3, 1);
  CUDA(cudaStreamSynchronize(free_standing));
  EXPECT(out[0] == 3 && cudaStreamQuery(0) == cudaErrorNotReady, "order: a non-blocking stream waited");
  cudaGetLastError();
  open_gate();

  start(1);
  cudaEvent_t event;
  CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  hold<<<1, 1, 0, a>>>(gate);
  set<<<1, 1, 0, a>>>(device, 9, 1);
  CUDA(cudaEventRecord(event, a));
  CUDA(cudaStreamWaitEvent(free_standing, event, 0));
  add<<<1, 1, 0, free_standing>>>(device, 1);
  open_gate();
  CUDA(cudaStreamSynchronize(free_standing));
  EXPECT(at(device) == 10, "order: an event did not order two streams");

  start(0);
  for (int i = 0; i < 100; i++) { // x -> 2 x + 1, multiplied and added in two threads and streams
    std::thread first([&] {
      times<<<1, 1, 0, a>>>(device, 2);
      CUDA(cudaEventRecord(event, a));
    });
    first.join();
    std::thread second([&] {
      CUDA(cudaStreamWaitEvent(free_standing, event, 0));
      add<<<1, 1, 0, free_standing>>>(device, 1);
      CUDA(cudaEventRecord(event, free_standing));
    });
    second.join();
    CUDA(cudaStreamWaitEvent(a, event, 0));
    if (i % 30 == 29) {
      EXPECT(at(device) == (1 << 30) - 1, "order: %d handed over between threads", at(device));
      start(0);
    }
  }
  CUDA(cudaEventDestroy(event));

  start(0);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; i++)
    threads.emplace_back([] {
      for (int k = 0; k < 100; k++)
        add<<<1, 1, 0, a>>>(device, 1);
    });
  for (std::thread &thread : threads)
    thread.join();
  CUDA(cudaStreamSynchronize(a));
  EXPECT(at(device) == 800, "order: %d of 800 launches of 8 threads", at(device));
  for (int i = 0; i < 20; i++) {
    cudaStream_t s;
    CUDA(cudaStreamCreate(&s));
    add<<<1, 1, 0, s>>>(device, 1);
    CUDA(cudaStreamDestroy(s));
  }
  CUDA(cudaDeviceSynchronize());
  EXPECT(at(device) == 820, "order: work of destroyed streams: %d", at(device));
}

static void device_and_host() {
  start(0);
  pinned[0] = 0;
  answer<<<1, 1, 0, free_standing>>>(gate, pinned, out);
  ((volatile int *)pinned)[0] = 11;
  __sync_synchronize();
  open_gate();
  CUDA(cudaStreamSynchronize(free_standing));
  EXPECT(out[0] == 11, "order: a running kernel saw %d of the host's write", out[0]);
  start(0);
  out[64] = 0;
  raise_flag<<<1, 1, 0, free_standing>>>(gate, out + 64);
  auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(LATE_MS);
  while (!*(volatile int *)gate && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT(*(volatile int *)gate && ((volatile int *)out)[64] == 42, "order: the host saw a flag and %d", out[64]);

  static int order[3], count;
  start(0);
  hold<<<1, 1, 0, a>>>(gate);
  CUDA(cudaLaunchHostFunc(a, [](void *) { order[count++] = 1; }, nullptr));
  set<<<1, 1, 0, a>>>(out, 77, 1);
  CUDA(cudaLaunchHostFunc(a, [](void *p) { order[count++] = *(int *)p; }, out));
  EXPECT(!count, "order: a host function ran before its turn");
  open_gate();
  CUDA(cudaStreamSynchronize(a));
  EXPECT(order[0] == 1 && order[1] == 77, "order: host functions saw %d and %d", order[0], order[1]);
}

static void graphs_and_memory() {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  start(0);
  CUDA(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
  add<<<1, 1, 0, a>>>(device, 1);
  CUDA(cudaStreamEndCapture(a, &graph));
  CUDA(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 15; i++) {
    CUDA(cudaGraphLaunch(exec, a));
    times<<<1, 1, 0, a>>>(device, 2);
  }
  CUDA(cudaStreamSynchronize(a));
  EXPECT(at(device) == (2 << 15) - 2, "order: graphs and kernels in one stream: %d", at(device));
  CUDA(cudaGraphExecDestroy(exec));
  CUDA(cudaGraphDestroy(graph));

  start(0);
  int *first, *second;
  CUDA(cudaMallocAsync(&first, 4096, a));
  hold<<<1, 1, 0, a>>>(gate);
  set<<<1, 1, 0, a>>>(first, 4, 1);
  CUDA(cudaMemcpyAsync(out, first, sizeof(int), cudaMemcpyDeviceToHost, a));
  CUDA(cudaFreeAsync(first, a));
  CUDA(cudaMallocAsync(&second, 4096, free_standing));
  set<<<1, 1, 0, free_standing>>>(second, 6, 1);
  CUDA(cudaStreamSynchronize(free_standing));
  open_gate();
  CUDA(cudaStreamSynchronize(a));
  EXPECT(out[0] == 4, "order: stream-ordered memory was given away early: %d", out[0]);
  CUDA(cudaFreeAsync(second, free_standing));

  start(0);
  CUDA(cudaMalloc(&first, 4096));
  hold<<<1, 1, 0, free_standing>>>(gate);
  set<<<1, 1, 0, free_standing>>>(first, 1, 1);
  CUDA(cudaMemcpyAsync(out, first, sizeof(int), cudaMemcpyDeviceToHost, free_standing));
  std::thread opener([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    open_gate();
  });
  CUDA(cudaFree(first)); // waits for the other stream
  EXPECT(out[0] == 1, "order: cudaFree did not wait for another stream");
  opener.join();
}

int main(int argc, char **argv) {
  vgt_parse(argc, argv, 1);
  CUDA(cudaMallocHost(&gate, 4096));
  CUDA(cudaMallocHost(&out, 4096));
  CUDA(cudaMallocHost(&pinned, 4096));
  int *seen;
  CUDA(cudaHostGetDevicePointer(&seen, gate, 0)); // fails without shared memory: no way to hold kernels back
  CUDA(cudaMalloc(&device, n * sizeof(int)));
  CUDA(cudaStreamCreate(&a));
  CUDA(cudaStreamCreate(&b));
  CUDA(cudaStreamCreateWithFlags(&free_standing, cudaStreamNonBlocking));
  open_gate();
  hold<<<1, 1>>>(gate); // load and compile now: the first launch of a kernel may block
  answer<<<1, 1>>>(gate, pinned, out);
  raise_flag<<<1, 1>>>(out, out + 1);
  times<<<1, 1>>>(device, 1);
  add<<<1, 1>>>(device, 0);
  sources_are_the_programs();
  streams();
  device_and_host();
  graphs_and_memory();
  printf("ok order\n");
  return 0;
}
