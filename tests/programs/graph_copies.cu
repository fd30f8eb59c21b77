// Copies as nodes of graphs: of arrays and of pageable memory, added and captured, with other parameters and other
// edges later; edges with data in a capture.
#include <algorithm>
#include <cstdio>

#include "vgt_check.h"

static const int width = 24, height = 5, count = width * height; // ints
static cudaStream_t stream;

static std::vector<int> values(int seed) {
  std::vector<int> made(count);
  for (int i = 0; i < count; i++)
    made[i] = i * 7 + seed * 1000;
  return made;
}

static cudaArray_t new_array() {
  cudaArray_t array;
  cudaChannelFormatDesc ints = cudaCreateChannelDesc<int>();
  CUDA(cudaMallocArray(&array, &ints, width, height));
  return array;
}

static cudaPitchedPtr rows(void *at) { return make_cudaPitchedPtr(at, width * sizeof(int), width, height); }

static cudaMemcpy3DParms copy(cudaMemcpyKind kind) {
  cudaMemcpy3DParms p = {};
  p.extent = make_cudaExtent(width, height, 1); // in elements where a side is an array
  p.kind = kind;
  return p;
}
static cudaMemcpy3DParms to_array(cudaArray_t dst, void *src, cudaMemcpyKind kind) {
  cudaMemcpy3DParms p = copy(kind);
  p.dstArray = dst;
  p.srcPtr = rows(src);
  return p;
}
static cudaMemcpy3DParms from_array(void *dst, cudaArray_t src, cudaMemcpyKind kind) {
  cudaMemcpy3DParms p = copy(kind);
  p.dstPtr = rows(dst);
  p.srcArray = src;
  return p;
}

static void launch(cudaGraph_t graph) {
  cudaGraphExec_t exec;
  CUDA(cudaGraphInstantiate(&exec, graph, 0));
  CUDA(cudaGraphLaunch(exec, stream));
  CUDA(cudaStreamSynchronize(stream));
  CUDA(cudaGraphExecDestroy(exec));
}

static cudaGraphNodeType type_of(cudaGraphNode_t node) {
  cudaGraphNodeType type;
  CUDA(cudaGraphNodeGetType(node, &type));
  return type;
}

// The order of cudaGraphGetNodes is not documented: the first of two is the one that depends on nothing.
static void in_order(cudaGraphNode_t *nodes) {
  size_t before = 0;
  CUDA(cudaGraphNodeGetDependencies(nodes[0], nullptr, nullptr, &before));
  if (before)
    std::swap(nodes[0], nodes[1]);
}

// Host to array, array to array, array to device, device to host.
static void nodes_of_arrays() {
  cudaGraph_t graph;
  cudaGraphNode_t node[4];
  cudaArray_t first = new_array(), second = new_array(), third = new_array();
  int *device;
  std::vector<int> source = values(1), other = values(2), back(count);
  CUDA(cudaMalloc(&device, count * sizeof(int)));
  CUDA(cudaGraphCreate(&graph, 0));
  cudaMemcpy3DParms p = to_array(first, source.data(), cudaMemcpyHostToDevice);
  CUDA(cudaGraphAddMemcpyNode(&node[0], graph, nullptr, 0, &p));
  p = copy(cudaMemcpyDeviceToDevice);
  p.srcArray = first;
  p.dstArray = second;
  CUDA(cudaGraphAddMemcpyNode(&node[1], graph, &node[0], 1, &p));
  p = from_array(device, second, cudaMemcpyDeviceToDevice);
  CUDA(cudaGraphAddMemcpyNode(&node[2], graph, &node[1], 1, &p));
  CUDA(cudaGraphAddMemcpyNode1D(&node[3], graph, &node[2], 1, back.data(), device, count * sizeof(int),
                                cudaMemcpyDeviceToHost));
  for (int i = 0; i < 4; i++)
    EXPECT(type_of(node[i]) == cudaGraphNodeTypeMemcpy, "graph_copies: type of node %d", i);
  cudaMemcpy3DParms found = {};
  CUDA(cudaGraphMemcpyNodeGetParams(node[1], &found));
  EXPECT(found.srcArray == first && found.dstArray == second && found.extent.height == height,
         "graph_copies: the arrays of a node");
  launch(graph);
  EXPECT(back == values(1), "graph_copies: through two arrays");
  // the graph takes other parameters: another array, another source
  p = copy(cudaMemcpyDeviceToDevice);
  p.srcArray = first;
  p.dstArray = third;
  CUDA(cudaGraphMemcpyNodeSetParams(node[1], &p));
  p = from_array(device, third, cudaMemcpyDeviceToDevice);
  CUDA(cudaGraphMemcpyNodeSetParams(node[2], &p));
  p = to_array(first, other.data(), cudaMemcpyHostToDevice);
  CUDA(cudaGraphMemcpyNodeSetParams(node[0], &p));
  launch(graph);
  EXPECT(back == values(2), "graph_copies: through another array");
  CUDA(cudaMemcpy2DFromArray(back.data(), width * sizeof(int), second, 0, 0, width * sizeof(int), height,
                             cudaMemcpyDeviceToHost));
  EXPECT(back == values(1), "graph_copies: an array that the graph no longer writes");
  CUDA(cudaGraphDestroy(graph));
  CUDA(cudaFree(device));
  for (cudaArray_t array : {first, second, third})
    CUDA(cudaFreeArray(array));
}

// Captured copies of pageable memory to and from an array, changed afterwards. What host functions of the graph write
// and read is pinned: NVIDIA's driver may read a pageable source before they run, in some replays and not in others.
static void captured() {
  cudaGraph_t graph;
  cudaGraphNode_t nodes[4], first;
  cudaArray_t array = new_array();
  size_t number = 4;
  std::vector<int> source = values(3), other = values(4), back(count);
  const size_t pitch = width * sizeof(int), nbytes = count * sizeof(int);
  CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  CUDA(cudaMemcpy2DToArrayAsync(array, 0, 0, source.data(), pitch, pitch, height, cudaMemcpyHostToDevice, stream));
  CUDA(cudaMemcpy2DFromArrayAsync(back.data(), pitch, array, 0, 0, pitch, height, cudaMemcpyDeviceToHost, stream));
  CUDA(cudaStreamEndCapture(stream, &graph));
  CUDA(cudaGraphGetNodes(graph, nodes, &number));
  EXPECT(number == 2 && type_of(nodes[0]) == cudaGraphNodeTypeMemcpy && type_of(nodes[1]) == cudaGraphNodeTypeMemcpy,
         "graph_copies: %zu nodes of two copies", number);
  in_order(nodes);
  launch(graph);
  EXPECT(back == values(3), "graph_copies: captured copies of an array");
  struct work {
    int *from, *to, seen;
  } work = {};
  CUDA(cudaMallocHost(&work.from, nbytes));
  CUDA(cudaMallocHost(&work.to, nbytes));
  cudaMemcpy3DParms p = to_array(array, work.from, cudaMemcpyHostToDevice);
  CUDA(cudaGraphMemcpyNodeSetParams(nodes[0], &p));
  p = from_array(work.to, array, cudaMemcpyDeviceToHost);
  CUDA(cudaGraphMemcpyNodeSetParams(nodes[1], &p));
  // an edge to a captured copy, and a node after one
  cudaHostNodeParams host = {};
  host.fn = [](void *data) {
    std::vector<int> five = values(5);
    std::copy(five.begin(), five.end(), ((struct work *)data)->from);
  };
  host.userData = &work;
  CUDA(cudaGraphAddHostNode(&first, graph, nullptr, 0, &host));
  CUDA(cudaGraphAddDependencies(graph, &first, &nodes[0], nullptr, 1));
  host.fn = [](void *data) { ((struct work *)data)->seen = ((struct work *)data)->to[1]; };
  CUDA(cudaGraphAddHostNode(&nodes[2], graph, &nodes[1], 1, &host));
  launch(graph);
  EXPECT(std::vector<int>(work.to, work.to + count) == values(5),
         "graph_copies: changed captured copies: %d, the source is %d", work.to[1], work.from[1]);
  EXPECT(work.seen == values(5)[1], "graph_copies: a host function after a copy saw %d", work.seen);
  EXPECT(back == values(3), "graph_copies: what a captured copy no longer writes: %d", back[1]);
  // pageable memory again, which no host function touches
  p = to_array(array, other.data(), cudaMemcpyHostToDevice);
  CUDA(cudaGraphMemcpyNodeSetParams(nodes[0], &p));
  p = from_array(back.data(), array, cudaMemcpyDeviceToHost);
  CUDA(cudaGraphMemcpyNodeSetParams(nodes[1], &p));
  launch(graph);
  EXPECT(back == values(4), "graph_copies: changed captured copies of pageable memory: %d", back[1]);
  CUDA(cudaGraphDestroy(graph));
  CUDA(cudaFreeHost(work.from));
  CUDA(cudaFreeHost(work.to));
  CUDA(cudaFreeArray(array));
}

// Executable graphs take other parameters for captured copies of one dimension.
static void executable() {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaGraphNode_t nodes[2];
  size_t number = 2;
  int *device;
  std::vector<int> source = values(6), other = values(7), back(count);
  const size_t nbytes = count * sizeof(int);
  CUDA(cudaMalloc(&device, nbytes));
  CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  CUDA(cudaMemcpyAsync(device, source.data(), nbytes, cudaMemcpyHostToDevice, stream));
  CUDA(cudaMemcpyAsync(back.data(), device, nbytes, cudaMemcpyDeviceToHost, stream));
  CUDA(cudaStreamEndCapture(stream, &graph));
  CUDA(cudaGraphGetNodes(graph, nodes, &number));
  EXPECT(number == 2, "graph_copies: %zu nodes", number);
  in_order(nodes);
  CUDA(cudaGraphInstantiate(&exec, graph, 0));
  CUDA(cudaGraphExecMemcpyNodeSetParams1D(exec, nodes[0], device, other.data(), nbytes, cudaMemcpyHostToDevice));
  CUDA(cudaGraphLaunch(exec, stream));
  CUDA(cudaStreamSynchronize(stream));
  EXPECT(back == values(7), "graph_copies: another source in an executable graph");
  launch(graph);
  EXPECT(back == values(6), "graph_copies: the graph keeps its own source");
  CUDA(cudaGraphExecDestroy(exec));
  CUDA(cudaGraphDestroy(graph));
  CUDA(cudaFree(device));
}

// What a capture goes on after may be an edge with data: here the next kernel may start before the first has ended.
__global__ void set(int *at, int value) { at[threadIdx.x] = value; }

static void edge_data() {
  cudaGraph_t graph;
  cudaStreamCaptureStatus status;
  const cudaGraphNode_t *before;
  const cudaGraphEdgeData *edges;
  size_t number = 0;
  int *device, back[2 * width];
  CUDA(cudaMalloc(&device, sizeof back));
  CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  set<<<1, width, 0, stream>>>(device, 1);
  CUDA(cudaStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &before, &edges, &number));
  EXPECT(number == 1 && (!edges || !edges[0].type), "graph_copies: %zu edges of a capture", number);
  cudaGraphNode_t kernel = before[0];
  cudaGraphEdgeData early = {};
  early.from_port = cudaGraphKernelNodePortProgrammatic;
  early.type = cudaGraphDependencyTypeProgrammatic;
  CUDA(cudaStreamUpdateCaptureDependencies(stream, &kernel, &early, 1, cudaStreamSetCaptureDependencies));
  CUDA(cudaStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &before, &edges, &number));
  EXPECT(number == 1 && before[0] == kernel && edges && edges[0].type == cudaGraphDependencyTypeProgrammatic &&
             edges[0].from_port == cudaGraphKernelNodePortProgrammatic,
         "graph_copies: data of a capture's edge");
  set<<<1, width, 0, stream>>>(device + width, 2);
  CUDA(cudaStreamEndCapture(stream, &graph));
  cudaGraphNode_t from, to;
  cudaGraphEdgeData data = {};
  number = 1;
  CUDA(cudaGraphGetEdges(graph, &from, &to, &data, &number));
  EXPECT(number == 1 && from == kernel && data.type == cudaGraphDependencyTypeProgrammatic,
         "graph_copies: %zu edges of the graph, type %d", number, data.type);
  launch(graph);
  CUDA(cudaMemcpy(back, device, sizeof back, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 2 * width; i++)
    EXPECT(back[i] == 1 + i / width, "graph_copies: element %d is %d", i, back[i]);
  CUDA(cudaGraphDestroy(graph));
  CUDA(cudaFree(device));
}

int main(int argc, char **argv) {
  vgt_parse(argc, argv, 1);
  CUDA(cudaStreamCreate(&stream));
  nodes_of_arrays();
  captured();
  executable();
  int major = 0;
  CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  if (major >= 9) // the first that starts kernels early
    edge_data();
  CUDA(cudaStreamDestroy(stream));
  printf("ok graph_copies\n");
  return 0;
}
