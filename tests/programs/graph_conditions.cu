// Conditional nodes: kernels decide whether a body graph runs, whether it runs again, and which one runs.
#include "vgt_check.h"

__global__ void count_down(cudaGraphConditionalHandle handle, int *left, int *turns) {
  ++*turns;
  cudaGraphSetConditional(handle, --*left > 0);
}
__global__ void choose(cudaGraphConditionalHandle handle, unsigned value) { cudaGraphSetConditional(handle, value); }
__global__ void put(int *p, int v) { *p = v; }

static int *data; // turns left, turns done, and a value that the bodies write

static cudaGraphNode_t add_kernel(cudaGraph_t graph, const cudaGraphNode_t *after, void *function, void **arguments) {
  cudaGraphNode_t node;
  cudaGraphNodeParams p = {};
  p.type = cudaGraphNodeTypeKernel;
  p.kernel.func = function;
  p.kernel.gridDim = dim3(1);
  p.kernel.blockDim = dim3(1);
  p.kernel.kernelParams = arguments;
  CUDA(cudaGraphAddNode(&node, graph, after, nullptr, after ? 1 : 0, &p));
  return node;
}

static std::vector<cudaGraph_t> add_conditional(cudaGraph_t graph, const cudaGraphNode_t *after,
                                                cudaGraphConditionalHandle handle, cudaGraphConditionalNodeType type,
                                                unsigned size) {
  cudaGraphNode_t node;
  cudaGraphNodeParams p = {};
  p.type = cudaGraphNodeTypeConditional;
  p.conditional.handle = handle;
  p.conditional.type = type;
  p.conditional.size = size;
  CUDA(cudaGraphAddNode(&node, graph, after, nullptr, after ? 1 : 0, &p));
  return std::vector<cudaGraph_t>(p.conditional.phGraph_out, p.conditional.phGraph_out + size);
}

static std::vector<int> run(cudaGraph_t graph, int left) {
  cudaGraphExec_t exec;
  std::vector<int> values = {left, 0, -1};
  CUDA(cudaMemcpy(data, values.data(), 3 * sizeof(int), cudaMemcpyHostToDevice));
  CUDA(cudaGraphInstantiate(&exec, graph, 0));
  CUDA(cudaGraphLaunch(exec, 0));
  values = vgt_download(data, 3);
  CUDA(cudaGraphExecDestroy(exec));
  return values;
}

static void repeat() {
  cudaGraph_t graph;
  cudaGraphConditionalHandle handle;
  int *turns = data + 1;
  CUDA(cudaGraphCreate(&graph, 0));
  CUDA(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
  cudaGraph_t body = add_conditional(graph, nullptr, handle, cudaGraphCondTypeWhile, 1)[0];
  void *arguments[] = {&handle, &data, &turns};
  add_kernel(body, nullptr, (void *)count_down, arguments);
  for (int times : {1, 7}) {
    std::vector<int> values = run(graph, times);
    EXPECT(values[0] == 0 && values[1] == times, "graph_conditions: %d turns instead of %d", values[1], times);
  }
  CUDA(cudaGraphDestroy(graph));
}

// A body graph that is captured from a stream.
static void captured() {
  cudaGraph_t graph;
  cudaGraphConditionalHandle handle;
  cudaStream_t stream;
  CUDA(cudaStreamCreate(&stream));
  CUDA(cudaGraphCreate(&graph, 0));
  CUDA(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
  cudaGraph_t body = add_conditional(graph, nullptr, handle, cudaGraphCondTypeWhile, 1)[0];
  CUDA(cudaStreamBeginCaptureToGraph(stream, body, nullptr, nullptr, 0, cudaStreamCaptureModeGlobal));
  put<<<1, 1, 0, stream>>>(data + 2, 5);
  count_down<<<1, 1, 0, stream>>>(handle, data, data + 1);
  CUDA(cudaStreamEndCapture(stream, nullptr));
  std::vector<int> values = run(graph, 4);
  EXPECT(values[1] == 4 && values[2] == 5, "graph_conditions: %d turns of a captured body", values[1]);
  CUDA(cudaGraphDestroy(graph));
  CUDA(cudaStreamDestroy(stream));
}

static void chosen(cudaGraphConditionalNodeType type, unsigned size, unsigned value, int expected) {
  cudaGraph_t graph;
  cudaGraphConditionalHandle handle;
  int *place = data + 2;
  CUDA(cudaGraphCreate(&graph, 0));
  CUDA(cudaGraphConditionalHandleCreate(&handle, graph, 0, 0));
  void *of_choose[] = {&handle, &value};
  cudaGraphNode_t first = add_kernel(graph, nullptr, (void *)choose, of_choose);
  std::vector<cudaGraph_t> bodies = add_conditional(graph, &first, handle, type, size);
  for (int i = 0; i < (int)size; i++) {
    void *of_put[] = {&place, &i};
    add_kernel(bodies[i], nullptr, (void *)put, of_put);
  }
  std::vector<int> values = run(graph, 0);
  EXPECT(values[2] == expected, "graph_conditions: type %d of %u with %u: body %d instead of %d", (int)type, size,
         value, values[2], expected);
  CUDA(cudaGraphDestroy(graph));
}

int main(int argc, char **argv) {
  vgt_parse(argc, argv, 1);
  CUDA(cudaMalloc(&data, 3 * sizeof(int)));
  repeat();
  captured();
  chosen(cudaGraphCondTypeIf, 1, 1, 0);
  chosen(cudaGraphCondTypeIf, 1, 0, -1);
  chosen(cudaGraphCondTypeIf, 2, 0, 1);
  chosen(cudaGraphCondTypeSwitch, 3, 2, 2);
  chosen(cudaGraphCondTypeSwitch, 3, 3, -1);
  CUDA(cudaFree(data));
  printf("ok graph_conditions\n");
  return 0;
}
