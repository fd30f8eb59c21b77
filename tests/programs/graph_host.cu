// Graphs that have the host take part at each launch: host functions and copies of pageable memory, captured and built
// node by node; a graph within a graph, its clone, and an update.
#include <cstring>

#include "vgt_check.h"

__global__ void affine(unsigned *data, int n, unsigned factor, unsigned offset) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    data[i] = data[i] * factor + offset;
}

struct host_side {
  std::vector<unsigned> in, out;
  unsigned launches, sum;
};

// Before the copy to the device: its source is other memory at each launch.
static void write_input(void *argument) {
  host_side *side = (host_side *)argument;
  side->launches++;
  for (unsigned &value : side->in)
    value += side->launches;
}

// After the copy from the device.
static void read_output(void *argument) {
  host_side *side = (host_side *)argument;
  side->sum = 0;
  for (unsigned value : side->out)
    side->sum += value;
}

static void check(const host_side &side, const std::vector<unsigned> &first, unsigned launches, unsigned factor,
                  unsigned offset, const char *what) {
  EXPECT(side.launches == launches, "graph_host: %s: %u launches instead of %u", what, side.launches, launches);
  unsigned added = launches * (launches + 1) / 2, sum = 0;
  for (size_t i = 0; i < first.size(); i++) {
    unsigned expected = (first[i] + added) * factor + offset;
    EXPECT(side.out[i] == expected, "graph_host: %s: element %zu is %u instead of %u", what, i, side.out[i], expected);
    sum += expected;
  }
  EXPECT(side.sum == sum, "graph_host: %s: the host function saw the sum %u instead of %u", what, side.sum, sum);
}

int main(int argc, char **argv) {
  vgt_args args = vgt_parse(argc, argv, 2999);
  std::mt19937 random(args.seed);
  int n = args.size, blocks = (n + 127) / 128;
  size_t nbytes = n * sizeof(unsigned);
  std::vector<unsigned> first = vgt_words(random, n);
  unsigned *device = nullptr, launches = 0;
  cudaStream_t stream;
  CUDA(cudaMalloc(&device, nbytes));
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));

  auto capture = [&](host_side &side, unsigned factor) {
    cudaGraph_t graph;
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CUDA(cudaLaunchHostFunc(stream, write_input, &side));
    CUDA(cudaMemcpyAsync(device, side.in.data(), nbytes, cudaMemcpyHostToDevice, stream));
    affine<<<blocks, 128, 0, stream>>>(device, n, factor, 7);
    CUDA(cudaMemcpyAsync(side.out.data(), device, nbytes, cudaMemcpyDeviceToHost, stream));
    CUDA(cudaLaunchHostFunc(stream, read_output, &side));
    CUDA(cudaStreamEndCapture(stream, &graph));
    return graph;
  };
  host_side side = {first, std::vector<unsigned>(n), 0, 0};
  cudaGraph_t captured = capture(side, 3);
  cudaGraphExec_t executable;
  CUDA(cudaGraphInstantiate(&executable, captured, 0));
  EXPECT(side.launches == 0 && side.in == first, "graph_host: a captured host function ran");
  for (launches = 0; launches < 4; launches++)
    CUDA(cudaGraphLaunch(executable, stream));
  CUDA(cudaStreamSynchronize(stream));
  check(side, first, launches, 3, 7, "captured");

  // Another capture gives it other parameters and other memory.
  host_side other = {first, std::vector<unsigned>(n), 0, 0};
  cudaGraph_t second = capture(other, 5);
  cudaGraphExecUpdateResultInfo info;
  CUDA(cudaGraphExecUpdate(executable, second, &info));
  CUDA(cudaGraphDestroy(second));
  CUDA(cudaGraphLaunch(executable, stream));
  CUDA(cudaStreamSynchronize(stream));
  check(other, first, 1, 5, 7, "updated");
  check(side, first, launches, 3, 7, "before the update");
  CUDA(cudaGraphExecDestroy(executable));

  // Twice in another graph, from a clone.
  cudaGraph_t clone, outer;
  cudaGraphNode_t one, two, inner_node;
  CUDA(cudaGraphClone(&clone, captured));
  CUDA(cudaGraphDestroy(captured));
  CUDA(cudaGraphCreate(&outer, 0));
  CUDA(cudaGraphAddChildGraphNode(&one, outer, nullptr, 0, clone));
  CUDA(cudaGraphAddChildGraphNode(&two, outer, &one, 1, clone));
  CUDA(cudaGraphDestroy(clone));
  cudaGraph_t inner;
  size_t count = 0;
  cudaGraphNodeType type;
  CUDA(cudaGraphNodeGetType(two, &type));
  EXPECT(type == cudaGraphNodeTypeGraph, "graph_host: a child graph has type %d", (int)type);
  CUDA(cudaGraphChildGraphNodeGetGraph(two, &inner));
  CUDA(cudaGraphGetNodes(inner, nullptr, &count));
  EXPECT(count == 5, "graph_host: the child graph has %zu nodes instead of 5", count);
  CUDA(cudaGraphInstantiate(&executable, outer, 0));
  CUDA(cudaGraphDestroy(outer));
  CUDA(cudaGraphLaunch(executable, stream));
  CUDA(cudaStreamSynchronize(stream));
  launches += 2;
  check(side, first, launches, 3, 7, "child graphs");
  CUDA(cudaGraphExecDestroy(executable));

  // Node by node.
  host_side built = {first, std::vector<unsigned>(n), 0, 0};
  cudaGraph_t graph;
  cudaGraphNode_t before, to_device, kernel, to_host, after;
  cudaHostNodeParams writes = {write_input, &built}, reads = {read_output, &built}, got = {};
  unsigned factor = 11, offset = 2;
  void *params[] = {&device, &n, &factor, &offset};
  cudaKernelNodeParams launch = {};
  launch.func = (void *)affine;
  launch.gridDim = dim3(blocks);
  launch.blockDim = dim3(128);
  launch.kernelParams = params;
  CUDA(cudaGraphCreate(&graph, 0));
  CUDA(cudaGraphAddHostNode(&before, graph, nullptr, 0, &writes));
  CUDA(
      cudaGraphAddMemcpyNode1D(&to_device, graph, &before, 1, device, built.in.data(), nbytes, cudaMemcpyHostToDevice));
  CUDA(cudaGraphAddKernelNode(&kernel, graph, &to_device, 1, &launch));
  CUDA(cudaGraphAddMemcpyNode1D(&to_host, graph, &kernel, 1, built.out.data(), device, nbytes, cudaMemcpyDeviceToHost));
  CUDA(cudaGraphAddHostNode(&after, graph, &to_host, 1, &reads));
  CUDA(cudaGraphHostNodeGetParams(before, &got));
  EXPECT(got.fn == write_input && got.userData == &built, "graph_host: a host node has other parameters");
  CUDA(cudaGraphNodeGetType(to_host, &type));
  EXPECT(type == cudaGraphNodeTypeMemcpy, "graph_host: a copy has type %d", (int)type);
  CUDA(cudaGraphClone(&clone, graph));
  CUDA(cudaGraphNodeFindInClone(&inner_node, before, clone));
  EXPECT(inner_node != before, "graph_host: a clone's node is the original's");
  CUDA(cudaGraphDestroy(clone));
  CUDA(cudaGraphInstantiate(&executable, graph, 0));
  for (int i = 0; i < 3; i++)
    CUDA(cudaGraphLaunch(executable, stream));
  CUDA(cudaStreamSynchronize(stream));
  check(built, first, 3, 11, 2, "built");
  host_side changed = {first, built.out, 0, 0};
  writes.userData = &changed;
  CUDA(cudaGraphExecHostNodeSetParams(executable, before, &writes));
  CUDA(cudaGraphExecMemcpyNodeSetParams1D(executable, to_device, device, changed.in.data(), nbytes,
                                          cudaMemcpyHostToDevice));
  CUDA(cudaGraphLaunch(executable, stream));
  CUDA(cudaStreamSynchronize(stream));
  EXPECT(changed.launches == 1 && built.launches == 3, "graph_host: %u and %u launches instead of 1 and 3",
         changed.launches, built.launches);
  changed.out = built.out;
  changed.sum = built.sum;
  check(changed, first, 1, 11, 2, "with other parameters");

  CUDA(cudaGraphExecDestroy(executable));
  CUDA(cudaGraphDestroy(graph));
  CUDA(cudaFree(device));
  CUDA(cudaStreamDestroy(stream));
  printf("ok graph_host n=%d\n", n);
  return 0;
}
