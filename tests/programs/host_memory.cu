// Host memory that kernels access at the host's own address, without a call that asks for a device address: as a
// parameter, in a table of pointers, in a graph. What the host writes is seen by the next launch, what kernels write
// after the next wait, and neither side loses what it has written beside the other's bytes. No kernel polls: the
// program is right on a channel without shared memory, too, where kernels access copies.
#include <cstring>

#include "vgt_check.h"

__global__ void add(unsigned *p, unsigned value, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    p[i] += value + i;
}

__global__ void add_by_table(unsigned **table, int count, int n) {
  for (int t = 0; t < count; t++)
    for (int i = threadIdx.x; i < n; i += blockDim.x)
      table[t][i] += t + 1;
}

__global__ void every_second_byte(unsigned char *p, unsigned char value, int n) {
  int i = 2 * (blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n)
    p[i] = value;
}

static cudaStream_t a, b;
static const int BLOCK = 128;

static void expect_sums(const unsigned *p, unsigned first, unsigned times, int n, const char *what) {
  for (int i = 0; i < n; i++)
    EXPECT(p[i] == first + times * i, "host_memory: %s: element %d is %u", what, i, p[i]);
}

static void parameters(unsigned *p, int n, const char *what) {
  int blocks = (n + BLOCK - 1) / BLOCK;
  memset(p, 0, n * sizeof *p);
  add<<<blocks, BLOCK, 0, a>>>(p, 3, n);
  CUDA(cudaStreamSynchronize(a));
  expect_sums(p, 3, 1, n, what);
  for (int i = 0; i < n; i++)
    p[i] = 100;
  add<<<blocks, BLOCK, 0, a>>>(p, 1, n); // twice without a wait between
  add<<<blocks, BLOCK, 0, a>>>(p, 1, n);
  CUDA(cudaDeviceSynchronize());
  expect_sums(p, 102, 2, n, what);
  cudaEvent_t event; // waits by an event, and by asking for it
  CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  add<<<blocks, BLOCK, 0, a>>>(p, 1, n);
  CUDA(cudaEventRecord(event, a));
  CUDA(cudaEventSynchronize(event));
  expect_sums(p, 103, 3, n, "cudaEventSynchronize");
  add<<<blocks, BLOCK, 0, a>>>(p, 1, n);
  CUDA(cudaEventRecord(event, a));
  while (cudaEventQuery(event) == cudaErrorNotReady)
    ;
  expect_sums(p, 104, 4, n, "cudaEventQuery");
  add<<<blocks, BLOCK, 0, a>>>(p, 1, n);
  while (cudaStreamQuery(a) == cudaErrorNotReady)
    ;
  CUDA(cudaGetLastError());
  expect_sums(p, 105, 5, n, "cudaStreamQuery");
  CUDA(cudaEventDestroy(event));
}

// Copies and fills come in their places of the stream, between the kernels.
static void copies(unsigned *p, unsigned *at, unsigned *pageable, int n) { // kernels access `p` at `at`
  size_t nbytes = n * sizeof *p;
  int blocks = (n + BLOCK - 1) / BLOCK;
  unsigned *device;
  CUDA(cudaMalloc(&device, nbytes));
  for (int i = 0; i < n; i++)
    p[i] = 7;
  add<<<blocks, BLOCK, 0, a>>>(at, 1, n);
  CUDA(cudaMemcpyAsync(device, p, nbytes, cudaMemcpyHostToDevice, a)); // reads what the kernel writes
  add<<<blocks, BLOCK, 0, a>>>(device, 0, n);
  CUDA(cudaMemcpyAsync(p, device, nbytes, cudaMemcpyDeviceToHost, a));
  add<<<blocks, BLOCK, 0, a>>>(at, 0, n); // reads what the copy wrote
  CUDA(cudaMemcpyAsync(pageable, p, nbytes, cudaMemcpyDefault, a));
  CUDA(cudaStreamSynchronize(a));
  expect_sums(p, 8, 3, n, "copies");
  expect_sums(pageable, 8, 3, n, "a copy to pageable memory");
  add<<<blocks, BLOCK, 0, a>>>(at, 1, n); // older than the fill, which must not be undone
  CUDA(cudaMemsetAsync(p, 0, nbytes, a));
  CUDA(cudaStreamSynchronize(a));
  expect_sums(p, 0, 0, n, "a fill");
  add<<<blocks, BLOCK, 0, a>>>(at, 1, n);
  CUDA(cudaMemcpy2DAsync(device, 4, p, 4, 4, n, cudaMemcpyHostToDevice, a));
  CUDA(cudaStreamSynchronize(a));
  CUDA(cudaMemcpy(pageable, device, nbytes, cudaMemcpyDeviceToHost));
  expect_sums(pageable, 1, 1, n, "a rectangle");
  CUDA(cudaDeviceSynchronize());
  CUDA(cudaFree(device));
}

static void tables(int n) {
  enum { COUNT = 3 };
  unsigned *host[COUNT], **table;
  for (int t = 0; t < COUNT; t++) {
    CUDA(cudaMallocHost(&host[t], n * sizeof(unsigned)));
    for (int i = 0; i < n; i++)
      host[t][i] = 10 * t;
  }
  CUDA(cudaMalloc(&table, sizeof host));
  CUDA(cudaMemcpy(table, host, sizeof host, cudaMemcpyHostToDevice));
  add_by_table<<<1, BLOCK>>>(table, COUNT, n);
  CUDA(cudaDeviceSynchronize());
  for (int t = 0; t < COUNT; t++) {
    expect_sums(host[t], 10 * t + t + 1, 0, n, "a table");
    CUDA(cudaFreeHost(host[t]));
  }
  CUDA(cudaFree(table));
}

// The kernel and the host write bytes of the same words, with nothing that orders them.
static void side_by_side(int n) {
  unsigned char *p;
  CUDA(cudaMallocHost(&p, n));
  memset(p, 0, n);
  for (unsigned char round = 1; round < 6; round++) {
    every_second_byte<<<(n / 2 + BLOCK) / BLOCK, BLOCK, 0, a>>>(p, round, n);
    for (int i = 1; i < n; i += 2)
      p[i] = 2 * round;
    every_second_byte<<<1, 1, 0, b>>>(p + n, 0, 0); // a launch that has nothing to do with them
    CUDA(cudaStreamSynchronize(b));
    CUDA(cudaStreamSynchronize(a));
    for (int i = 0; i < n; i++)
      EXPECT(p[i] == (i % 2 ? 2 * round : round), "host_memory: side by side: byte %d is %d", i, p[i]);
  }
  CUDA(cudaFreeHost(p));
}

struct between {
  unsigned *p;
  int n;
  bool right;
};

// A host function sees what kernels before it wrote, and kernels after it what it writes.
static void host_function(void *argument) {
  between *x = (between *)argument;
  for (int i = 0; i < x->n; i++) {
    x->right &= x->p[i] == 1u + i;
    x->p[i] = 50;
  }
}

static void graphs(unsigned *p, int n) {
  between x = {p, n, true};
  int blocks = (n + BLOCK - 1) / BLOCK;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  memset(p, 0, n * sizeof *p);
  add<<<blocks, BLOCK, 0, a>>>(p, 1, n);
  CUDA(cudaLaunchHostFunc(a, host_function, &x));
  add<<<blocks, BLOCK, 0, a>>>(p, 5, n);
  CUDA(cudaStreamSynchronize(a));
  EXPECT(x.right, "host_memory: a host function did not see what the kernel wrote");
  expect_sums(p, 55, 1, n, "a host function");
  CUDA(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
  add<<<blocks, BLOCK, 0, a>>>(p, 1, n);
  CUDA(cudaLaunchHostFunc(a, host_function, &x));
  add<<<blocks, BLOCK, 0, a>>>(p, 5, n);
  CUDA(cudaStreamEndCapture(a, &graph));
  CUDA(cudaGraphInstantiate(&exec, graph, 0));
  for (int round = 0; round < 2; round++) {
    memset(p, 0, n * sizeof *p);
    CUDA(cudaGraphLaunch(exec, a));
    CUDA(cudaStreamSynchronize(a));
    EXPECT(x.right, "host_memory: a host function of a graph did not see what the kernel wrote");
    expect_sums(p, 55, 1, n, "a graph");
  }
  CUDA(cudaGraphExecDestroy(exec));
  CUDA(cudaGraphDestroy(graph));
}

int main(int argc, char **argv) {
  vgt_args args = vgt_parse(argc, argv, 3001);
  int n = args.size;
  size_t nbytes = n * sizeof(unsigned);
  CUDA(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
  CUDA(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
  std::vector<unsigned> pageable(n);
  unsigned *pinned, *mapped, *managed, *device;
  CUDA(cudaMallocHost(&pinned, nbytes));
  CUDA(cudaHostAlloc(&mapped, nbytes, cudaHostAllocMapped));
  CUDA(cudaMallocManaged(&managed, nbytes));
  parameters(pinned, n, "pinned");
  parameters(mapped, n, "mapped");
  parameters(managed, n, "managed");
  copies(pinned, pinned, pageable.data(), n);
  copies(managed, managed, pageable.data(), n);
  CUDA(cudaHostRegister(pageable.data(), nbytes, cudaHostRegisterMapped));
  CUDA(cudaHostGetDevicePointer(&device, pageable.data(), 0));
  copies(pageable.data(), device, managed, n);
  memset(pageable.data(), 0, nbytes);
  add<<<(n + BLOCK - 1) / BLOCK, BLOCK>>>(device, 6, n);
  CUDA(cudaMemset(device, 0xff, 4)); // by the device's address
  CUDA(cudaDeviceSynchronize());
  EXPECT(pageable[0] == ~0u && pageable[n - 1] == (n > 1 ? 6u + n - 1 : ~0u), "host_memory: registered");
  CUDA(cudaHostUnregister(pageable.data()));
  tables(n);
  side_by_side(n);
  graphs(pinned, n);
  CUDA(cudaFreeHost(pinned));
  CUDA(cudaFreeHost(mapped));
  CUDA(cudaFree(managed));
  CUDA(cudaMallocHost(&pinned, nbytes)); // not the freed memory's copy
  parameters(pinned, n, "again");
  printf("ok host_memory n=%d\n", n);
  return 0;
}
