// Memory that graphs allocate and free, by nodes and by captured calls, and the attributes of a device about it.
#include "vgt_check.h"

__global__ void put(int *p, int n, int v) {
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    p[i] = v + i;
}
__global__ void add(int *to, const int *from, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    to[i] += from[i];
}

static int *result;

static void expect(int n, int start, int times, const char *what) {
  std::vector<int> values = vgt_download(result, n);
  for (int i = 0; i < n; i++)
    EXPECT(values[i] == times * (start + i), "graph_memory: %s: element %d is %d instead of %d", what, i, values[i],
           times * (start + i));
}

static cudaMemAllocNodeParams parameters(size_t nbytes) {
  static cudaMemAccessDesc access = {{cudaMemLocationTypeDevice, {0}}, cudaMemAccessFlagsProtReadWrite};
  cudaMemAllocNodeParams p = {};
  p.poolProps.allocType = cudaMemAllocationTypePinned;
  p.poolProps.location.type = cudaMemLocationTypeDevice;
  p.poolProps.location.id = 0;
  p.accessDescs = &access;
  p.accessDescCount = 1;
  p.bytesize = nbytes;
  return p;
}

static cudaKernelNodeParams kernel(void *function, void **arguments) {
  cudaKernelNodeParams p = {};
  p.func = function;
  p.gridDim = dim3(1);
  p.blockDim = dim3(128);
  p.kernelParams = arguments;
  return p;
}

// Memory that one graph both allocates and frees.
static void by_nodes(cudaStream_t stream, int n, int v) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaGraphNode_t alloc, first, second, end;
  CUDA(cudaGraphCreate(&graph, 0));
  cudaMemAllocNodeParams p = parameters(n * sizeof(int)), told = {};
  CUDA(cudaGraphAddMemAllocNode(&alloc, graph, nullptr, 0, &p));
  EXPECT(p.dptr, "graph_memory: an allocation without an address");
  CUDA(cudaGraphMemAllocNodeGetParams(alloc, &told));
  EXPECT(told.dptr == p.dptr && told.bytesize == p.bytesize && told.poolProps.location.id == 0,
         "graph_memory: a node's parameters");
  void *of_put[] = {&p.dptr, &n, &v}, *of_add[] = {&result, &p.dptr, &n};
  cudaKernelNodeParams puts = kernel((void *)put, of_put), adds = kernel((void *)add, of_add);
  CUDA(cudaGraphAddKernelNode(&first, graph, &alloc, 1, &puts));
  CUDA(cudaGraphAddKernelNode(&second, graph, &first, 1, &adds));
  CUDA(cudaGraphAddMemFreeNode(&end, graph, &second, 1, p.dptr));
  void *freed = nullptr;
  CUDA(cudaGraphMemFreeNodeGetParams(end, &freed));
  EXPECT(freed == p.dptr, "graph_memory: the address that a node frees");
  CUDA(cudaGraphInstantiate(&exec, graph, 0));
  CUDA(cudaMemset(result, 0, n * sizeof(int)));
  for (int i = 0; i < 3; i++)
    CUDA(cudaGraphLaunch(exec, stream));
  CUDA(cudaStreamSynchronize(stream));
  expect(n, v, 3, "nodes");
  CUDA(cudaGraphExecDestroy(exec));
  CUDA(cudaGraphDestroy(graph));
}

// Copies from pinned or pageable memory to memory that the graph allocates, and back.
static void copied(cudaStream_t stream, int n, int v, bool pinned) {
  size_t nbytes = n * sizeof(int);
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaGraphNode_t alloc, in, work, out, end;
  std::vector<int> pageable(2 * n);
  int *memory = pageable.data();
  if (pinned)
    CUDA(cudaMallocHost(&memory, 2 * nbytes));
  for (int i = 0; i < n; i++)
    memory[i] = v + i, memory[n + i] = -1;
  CUDA(cudaGraphCreate(&graph, 0));
  cudaMemAllocNodeParams p = parameters(nbytes);
  CUDA(cudaGraphAddMemAllocNode(&alloc, graph, nullptr, 0, &p));
  CUDA(cudaGraphAddMemcpyNode1D(&in, graph, &alloc, 1, p.dptr, memory, nbytes, cudaMemcpyHostToDevice));
  void *of_add[] = {&p.dptr, &p.dptr, &n};
  cudaKernelNodeParams adds = kernel((void *)add, of_add);
  CUDA(cudaGraphAddKernelNode(&work, graph, &in, 1, &adds));
  CUDA(cudaGraphAddMemcpyNode1D(&out, graph, &work, 1, memory + n, p.dptr, nbytes, cudaMemcpyDeviceToHost));
  CUDA(cudaGraphAddMemFreeNode(&end, graph, &out, 1, p.dptr));
  CUDA(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 2; i++)
    CUDA(cudaGraphLaunch(exec, stream));
  CUDA(cudaStreamSynchronize(stream));
  for (int i = 0; i < n; i++)
    EXPECT(memory[n + i] == 2 * (v + i), "graph_memory: copied: element %d is %d instead of %d", i, memory[n + i],
           2 * (v + i));
  CUDA(cudaGraphExecDestroy(exec));
  CUDA(cudaGraphDestroy(graph));
  if (pinned)
    CUDA(cudaFreeHost(memory));
}

// A captured allocation that is freed outside the graph: each launch allocates it again at the same address.
static void captured(cudaStream_t stream, int n, int v) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  int *memory = nullptr;
  CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  CUDA(cudaMallocAsync(&memory, n * sizeof(int), stream));
  put<<<1, 128, 0, stream>>>(memory, n, v);
  CUDA(cudaStreamEndCapture(stream, &graph));
  CUDA(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 2; i++) {
    CUDA(cudaGraphLaunch(exec, stream));
    CUDA(cudaMemcpyAsync(result, memory, n * sizeof(int), cudaMemcpyDefault, stream));
    CUDA(cudaFreeAsync(memory, stream));
    CUDA(cudaStreamSynchronize(stream));
    expect(n, v, 1, "captured");
  }
  CUDA(cudaGraphExecDestroy(exec));
  CUDA(cudaGraphDestroy(graph));
}

static unsigned long long attribute(cudaGraphMemAttributeType which) {
  unsigned long long value = ~0ull;
  CUDA(cudaDeviceGetGraphMemAttribute(0, which, &value));
  return value;
}

int main(int argc, char **argv) {
  vgt_args args = vgt_parse(argc, argv, 5000);
  int n = args.size, v = (int)(args.seed % 1000);
  cudaStream_t stream;
  CUDA(cudaStreamCreate(&stream));
  CUDA(cudaMalloc(&result, n * sizeof(int)));
  by_nodes(stream, n, v);
  copied(stream, n, v, true);
  copied(stream, n, v, false);
  captured(stream, n, v);
  CUDA(cudaDeviceGraphMemTrim(0));
  EXPECT(attribute(cudaGraphMemAttrUsedMemCurrent) == 0, "graph_memory: memory of graphs that are gone");
  EXPECT(attribute(cudaGraphMemAttrUsedMemHigh) >= n * sizeof(int), "graph_memory: the most that was used");
  unsigned long long zero = 0;
  CUDA(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrUsedMemHigh, &zero));
  EXPECT(attribute(cudaGraphMemAttrUsedMemHigh) == 0, "graph_memory: a mark that was set back");
  CUDA(cudaFree(result));
  CUDA(cudaStreamDestroy(stream));
  printf("ok graph_memory\n");
  return 0;
}
