// Graphs inspected and changed (NR10): nodes of any type added by one call, edges, parameters of captured nodes, the
// graph of an ongoing capture, captures into an existing graph.
#include <cstdio>
#include <cstring>
#include <unistd.h>

#include "vgt_check.h"

__global__ void add(int *p, int v) { atomicAdd(p + threadIdx.x, v); }
__global__ void twice(int *p, int n, char *) {
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    p[i] *= 2;
}

static int *data;
static const int n = 32;

static void run(cudaGraph_t graph, int start, int expected, const char *what) {
  std::vector<int> values(n, start);
  cudaGraphExec_t exec;
  CUDA(cudaMemcpy(data, values.data(), n * sizeof(int), cudaMemcpyHostToDevice));
  CUDA(cudaGraphInstantiate(&exec, graph, 0));
  CUDA(cudaGraphLaunch(exec, 0));
  CUDA(cudaMemcpy(values.data(), data, n * sizeof(int), cudaMemcpyDeviceToHost));
  for (int i = 0; i < n; i++)
    EXPECT(values[i] == expected, "graph_nodes: %s: element %d is %d instead of %d", what, i, values[i], expected);
  CUDA(cudaGraphExecDestroy(exec));
}

// llama.cpp reads the parameters of each captured kernel, and changes them.
static void captured_parameters(cudaStream_t stream) {
  cudaGraph_t graph;
  cudaGraphNode_t nodes[4] = {};
  size_t count = 4, edges = 0, roots = 4;
  CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  add<<<3, n, 0, stream>>>(data, 7);
  twice<<<1, 64, 16, stream>>>(data, n, nullptr);
  CUDA(cudaMemsetAsync(data, 0, 4, stream));
  CUDA(cudaStreamEndCapture(stream, &graph));
  CUDA(cudaGraphGetNodes(graph, nodes, &count));
  EXPECT(count == 3, "graph_nodes: %zu nodes", count);
  cudaKernelNodeParams p = {};
  CUDA(cudaGraphKernelNodeGetParams(nodes[0], &p));
  EXPECT(p.gridDim.x == 3 && p.blockDim.x == n && *(int **)p.kernelParams[0] == data && *(int *)p.kernelParams[1] == 7,
         "graph_nodes: grid %u, block %u", p.gridDim.x, p.blockDim.x);
  EXPECT(p.func == (void *)add, "graph_nodes: the function of a captured node");
  cudaKernelNodeParams second = {};
  CUDA(cudaGraphKernelNodeGetParams(nodes[1], &second));
  EXPECT(second.sharedMemBytes == 16 && *(int *)second.kernelParams[1] == n && second.func == (void *)twice,
         "graph_nodes: shared %u", second.sharedMemBytes);
  cudaMemsetParams fill = {};
  CUDA(cudaGraphMemsetNodeGetParams(nodes[2], &fill));
  EXPECT(fill.dst == data && fill.elementSize * fill.width * fill.height == 4 && !fill.value, "graph_nodes: a fill");
  CUDA(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
  EXPECT(edges == 2, "graph_nodes: %zu edges", edges);
  cudaGraphNode_t from[2], to[2], root[4];
  CUDA(cudaGraphGetEdges(graph, from, to, nullptr, &edges));
  EXPECT(from[0] == nodes[0] && to[0] == nodes[1] && from[1] == nodes[1] && to[1] == nodes[2], "graph_nodes: edges");
  CUDA(cudaGraphGetRootNodes(graph, root, &roots));
  EXPECT(roots == 1 && root[0] == nodes[0] && !root[1], "graph_nodes: %zu roots", roots);
  size_t neighbours = 4;
  CUDA(cudaGraphNodeGetDependencies(nodes[1], root, nullptr, &neighbours));
  EXPECT(neighbours == 1 && root[0] == nodes[0], "graph_nodes: dependencies");
  neighbours = 4;
  CUDA(cudaGraphNodeGetDependentNodes(nodes[1], root, nullptr, &neighbours));
  EXPECT(neighbours == 1 && root[0] == nodes[2], "graph_nodes: dependent nodes");

  fill.dst = data + 1; // change the captured node
  CUDA(cudaGraphMemsetNodeSetParams(nodes[2], &fill));
  CUDA(cudaGraphMemsetNodeGetParams(nodes[2], &fill));
  EXPECT(fill.dst == data + 1, "graph_nodes: a changed fill");
  int five = 5;
  void *changed[] = {&data, &five};
  p.kernelParams = changed;
  p.gridDim.x = 2;
  CUDA(cudaGraphKernelNodeSetParams(nodes[0], &p));
  CUDA(cudaGraphRemoveDependencies(graph, &nodes[1], &nodes[2], nullptr, 1));
  CUDA(cudaGraphAddDependencies(graph, &nodes[1], &nodes[2], nullptr, 1));
  fill.dst = data;
  fill.elementSize = 4;
  fill.width = n;
  fill.value = 0;
  CUDA(cudaGraphMemsetNodeSetParams(nodes[2], &fill));
  run(graph, 1, 0, "captured and changed");
  CUDA(cudaGraphDestroy(graph));
}

// Nodes of several types added by one call, as XLA builds its command buffers.
static void any_type(cudaEvent_t event) {
  cudaGraph_t graph, child;
  cudaGraphNode_t fill, kernel, barrier, copy, host, inner, nested, record;
  int *other = nullptr, calls = 0, v = 3;
  CUDA(cudaMalloc(&other, n * sizeof(int)));
  CUDA(cudaGraphCreate(&graph, 0));
  CUDA(cudaGraphCreate(&child, 0));
  cudaGraphNodeParams p = {};
  p.type = cudaGraphNodeTypeMemset;
  p.memset.dst = other;
  p.memset.elementSize = 4;
  p.memset.width = n;
  p.memset.height = 1;
  p.memset.value = 10;
  CUDA(cudaGraphAddNode(&fill, graph, nullptr, nullptr, 0, &p));
  p = {};
  p.type = cudaGraphNodeTypeEmpty;
  CUDA(cudaGraphAddNode(&barrier, graph, &fill, nullptr, 1, &p));
  p = {};
  void *arguments[] = {&other, &v};
  p.type = cudaGraphNodeTypeKernel;
  p.kernel.func = (void *)add;
  p.kernel.gridDim = dim3(2);
  p.kernel.blockDim = dim3(n);
  p.kernel.kernelParams = arguments;
  CUDA(cudaGraphAddNode(&kernel, graph, &barrier, nullptr, 1, &p));
  p = {};
  p.type = cudaGraphNodeTypeHost;
  p.host.fn = [](void *count) { ++*(int *)count; };
  p.host.userData = &calls;
  CUDA(cudaGraphAddNode(&host, graph, &kernel, nullptr, 1, &p));
  p = {};
  p.type = cudaGraphNodeTypeMemcpy;
  p.memcpy.copyParams.srcPtr = make_cudaPitchedPtr(other, n * sizeof(int), n * sizeof(int), 1);
  p.memcpy.copyParams.dstPtr = make_cudaPitchedPtr(data, n * sizeof(int), n * sizeof(int), 1);
  p.memcpy.copyParams.extent = make_cudaExtent(n * sizeof(int), 1, 1);
  p.memcpy.copyParams.kind = cudaMemcpyDeviceToDevice;
  CUDA(cudaGraphAddNode(&copy, graph, &host, nullptr, 1, &p));
  p = {};
  char *none = nullptr;
  int size = n;
  void *of_twice[] = {&data, &size, &none};
  p.type = cudaGraphNodeTypeKernel;
  p.kernel.func = (void *)twice;
  p.kernel.gridDim = dim3(1);
  p.kernel.blockDim = dim3(64);
  p.kernel.kernelParams = of_twice;
  CUDA(cudaGraphAddNode(&inner, child, nullptr, nullptr, 0, &p));
  p = {};
  p.type = cudaGraphNodeTypeGraph;
  p.graph.graph = child;
  CUDA(cudaGraphAddNode(&nested, graph, &copy, nullptr, 1, &p));
  p = {};
  p.type = cudaGraphNodeTypeEventRecord;
  p.eventRecord.event = event;
  CUDA(cudaGraphAddNode(&record, graph, &nested, nullptr, 1, &p));
  run(graph, 0, 2 * (10 + 2 * 3), "nodes of any type");
  EXPECT(calls == 1, "graph_nodes: a host function ran %d times", calls);

  cudaGraphExec_t exec;
  CUDA(cudaGraphInstantiate(&exec, graph, 0));
  v = 4;
  p = {};
  p.type = cudaGraphNodeTypeKernel;
  p.kernel.func = (void *)add;
  p.kernel.gridDim = dim3(1);
  p.kernel.blockDim = dim3(n);
  p.kernel.kernelParams = arguments;
  CUDA(cudaGraphExecNodeSetParams(exec, kernel, &p));
  CUDA(cudaGraphLaunch(exec, 0));
  std::vector<int> values = vgt_download(data, n);
  EXPECT(values[n - 1] == 2 * (10 + 4), "graph_nodes: after ExecNodeSetParams %d", values[n - 1]);
  CUDA(cudaGraphExecDestroy(exec));

  char path[] = "/tmp/vgt-graph-XXXXXX";
  int fd = mkstemp(path);
  CUDA(cudaGraphDebugDotPrint(graph, path, 0));
  char text[8192] = "";
  FILE *file = fdopen(fd, "r");
  text[fread(text, 1, sizeof text - 1, file)] = 0;
  fclose(file);
  unlink(path);
  EXPECT(!strncmp(text, "digraph", 7) && strstr(text, "->") && strstr(text, "add"), "graph_nodes: %.200s", text);
  CUDA(cudaGraphDestroy(child));
  CUDA(cudaGraphDestroy(graph));
  CUDA(cudaFree(other));
}

static void capture_going_on(cudaStream_t stream) {
  cudaStreamCaptureStatus status;
  unsigned long long id = 0;
  cudaGraph_t graph = nullptr, ended;
  const cudaGraphNode_t *dependencies = nullptr;
  const cudaGraphEdgeData *edges = nullptr;
  size_t count = 9;
  CUDA(cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &dependencies, &edges, &count));
  EXPECT(status == cudaStreamCaptureStatusNone, "graph_nodes: status %d", (int)status);
  CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  CUDA(cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &dependencies, &edges, &count));
  EXPECT(status == cudaStreamCaptureStatusActive && id && graph && !count, "graph_nodes: a fresh capture");
  add<<<1, n, 0, stream>>>(data, 1);
  CUDA(cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &dependencies, &edges, &count));
  EXPECT(count == 1, "graph_nodes: %zu dependencies", count);
  cudaGraphNode_t first = dependencies[0], manual;
  int two = 2;
  void *arguments[] = {&data, &two};
  cudaGraphNodeParams p = {};
  p.type = cudaGraphNodeTypeKernel;
  p.kernel.func = (void *)add;
  p.kernel.gridDim = dim3(1);
  p.kernel.blockDim = dim3(n);
  p.kernel.kernelParams = arguments;
  CUDA(cudaGraphAddNode(&manual, graph, &first, nullptr, 1, &p)); // added by hand; the capture continues after it
  CUDA(cudaStreamUpdateCaptureDependencies(stream, &manual, nullptr, 1, cudaStreamSetCaptureDependencies));
  twice<<<1, 64, 0, stream>>>(data, n, nullptr);
  CUDA(cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &dependencies, &edges, &count));
  EXPECT(count == 1 && dependencies[0] != manual && dependencies[0] != first, "graph_nodes: the last node");
  CUDA(cudaStreamEndCapture(stream, &ended));
  EXPECT(ended == graph, "graph_nodes: the graph of a capture changed its handle");
  size_t nodes = 0, number = 0;
  CUDA(cudaGraphGetNodes(graph, nullptr, &nodes));
  CUDA(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &number));
  EXPECT(nodes == 3 && number == 2, "graph_nodes: %zu nodes, %zu edges", nodes, number);
  run(graph, 5, 2 * (5 + 1 + 2), "a capture with a node put in");

  cudaGraphNode_t all[3]; // capture once more, into the same graph
  nodes = 3;
  CUDA(cudaGraphGetNodes(graph, all, &nodes));
  CUDA(cudaStreamBeginCaptureToGraph(stream, graph, &all[2], nullptr, 1, cudaStreamCaptureModeRelaxed));
  add<<<1, n, 0, stream>>>(data, 100);
  CUDA(cudaStreamEndCapture(stream, &ended));
  EXPECT(ended == graph, "graph_nodes: a capture into a graph gave another");
  run(graph, 5, 2 * (5 + 1 + 2) + 100, "a capture into a graph");
  CUDA(cudaGraphDestroy(graph));
}

// Parameters of copy nodes, added and captured; destroying a node removes its edges.
static void copies(cudaStream_t stream) {
  cudaGraph_t graph;
  cudaGraphNode_t fill, copy, nodes[4];
  int *other = nullptr;
  std::vector<int> fives(2 * n, 5);
  CUDA(cudaMalloc(&other, 2 * n * sizeof(int)));
  CUDA(cudaMemcpy(other, fives.data(), 2 * n * sizeof(int), cudaMemcpyHostToDevice));
  CUDA(cudaMemset(other + n, 0, n * sizeof(int)));
  CUDA(cudaGraphCreate(&graph, 0));
  cudaMemsetParams zero = {};
  zero.dst = other;
  zero.elementSize = 4;
  zero.width = n;
  zero.height = 1;
  CUDA(cudaGraphAddMemsetNode(&fill, graph, nullptr, 0, &zero));
  CUDA(cudaGraphAddMemcpyNode1D(&copy, graph, &fill, 1, data, other, n * sizeof(int), cudaMemcpyDeviceToDevice));
  cudaMemcpy3DParms p = {};
  CUDA(cudaGraphMemcpyNodeGetParams(copy, &p));
  EXPECT(p.srcPtr.ptr == other && p.dstPtr.ptr == data && p.extent.width == n * sizeof(int) && p.extent.height == 1,
         "graph_nodes: a copy of %zu bytes", p.extent.width);
  run(graph, 1, 0, "a fill and a copy");
  CUDA(cudaMemcpy(other, fives.data(), n * sizeof(int), cudaMemcpyHostToDevice));
  CUDA(cudaGraphDestroyNode(fill));
  size_t count = 4, edges = 9;
  CUDA(cudaGraphGetNodes(graph, nodes, &count));
  CUDA(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
  EXPECT(count == 1 && nodes[0] == copy && !edges, "graph_nodes: %zu nodes, %zu edges after one is gone", count, edges);
  run(graph, 1, 5, "a copy alone");
  p.srcPtr.ptr = other + n;
  CUDA(cudaGraphMemcpyNodeSetParams(copy, &p));
  CUDA(cudaGraphMemcpyNodeGetParams(copy, &p));
  EXPECT(p.srcPtr.ptr == other + n, "graph_nodes: the source of a changed copy");
  run(graph, 1, 0, "a changed copy");
  CUDA(cudaGraphDestroy(graph));
  CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  CUDA(cudaMemcpyAsync(data, other, n * sizeof(int), cudaMemcpyDeviceToDevice, stream));
  CUDA(cudaStreamEndCapture(stream, &graph));
  count = 4;
  CUDA(cudaGraphGetNodes(graph, nodes, &count));
  p = {};
  CUDA(cudaGraphMemcpyNodeGetParams(nodes[0], &p));
  EXPECT(count == 1 && p.srcPtr.ptr == other && p.dstPtr.ptr == data && p.extent.width == n * sizeof(int),
         "graph_nodes: a captured copy of %zu bytes", p.extent.width);
  CUDA(cudaGraphDestroy(graph));
  CUDA(cudaFree(other));
}

// An invalidated capture leaves no graph, and the stream can be captured again.
static void lost_capture(cudaStream_t stream) {
  cudaGraph_t graph = (cudaGraph_t)1;
  CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  add<<<1, n, 0, stream>>>(data, 1);
  EXPECT(cudaStreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported, "graph_nodes: a wait inside a capture");
  EXPECT(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated && !graph,
         "graph_nodes: a lost one");
  cudaGetLastError();
  CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  add<<<1, n, 0, stream>>>(data, 1);
  CUDA(cudaStreamEndCapture(stream, &graph));
  run(graph, 1, 2, "after a lost capture");
  CUDA(cudaGraphDestroy(graph));
}

int main(int argc, char **argv) {
  vgt_parse(argc, argv, 1);
  cudaStream_t stream;
  CUDA(cudaStreamCreate(&stream));
  CUDA(cudaMalloc(&data, n * sizeof(int)));
  captured_parameters(stream);
  cudaEvent_t event;
  CUDA(cudaEventCreate(&event));
  any_type(event);
  CUDA(cudaEventSynchronize(event));
  CUDA(cudaEventDestroy(event));
  capture_going_on(stream);
  copies(stream);
  lost_capture(stream);
  CUDA(cudaFree(data));
  CUDA(cudaStreamDestroy(stream));
  printf("ok graph_nodes\n");
  return 0;
}
