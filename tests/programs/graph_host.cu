// Graphs that involve the host at each launch: host functions, and copies of pinned and pageable memory, captured and
// built node by node; child graphs, clones, and updates.
//
// A copy from pinned memory sees what an earlier host function of the same replay has written. Pageable memory is read
// during the launch or later, so its contents must be complete before the launch. In return, the program may reuse the
// memory, and read the results, as soon as the launch has returned, without synchronisation.
#include <chrono>
#include <cstring>
#include <thread>

#include "vgt_check.h"

__global__ void affine(unsigned *data, int n, unsigned factor, unsigned offset) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    data[i] = data[i] * factor + offset;
}

static int n, blocks;
static size_t nbytes;
static std::vector<unsigned> first;
static unsigned *device;
static cudaStream_t stream;

static cudaGraph_t capture(cudaHostFn_t before, cudaHostFn_t after, void *argument, const unsigned *in, unsigned *out,
                           unsigned factor) {
  cudaGraph_t graph;
  CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  CUDA(cudaLaunchHostFunc(stream, before, argument));
  CUDA(cudaMemcpyAsync(device, in, nbytes, cudaMemcpyHostToDevice, stream));
  affine<<<blocks, 128, 0, stream>>>(device, n, factor, 7);
  CUDA(cudaMemcpyAsync(out, device, nbytes, cudaMemcpyDeviceToHost, stream));
  CUDA(cudaLaunchHostFunc(stream, after, argument));
  CUDA(cudaStreamEndCapture(stream, &graph));
  return graph;
}

struct nodes {
  cudaGraph_t graph;
  cudaGraphNode_t before, to_device, kernel, to_host, after;
};

static nodes build(cudaHostFn_t before, cudaHostFn_t after, void *argument, const unsigned *in, unsigned *out,
                   unsigned factor) {
  nodes made;
  unsigned offset = 7;
  cudaHostNodeParams begins = {before, argument}, ends = {after, argument};
  void *params[] = {&device, &n, &factor, &offset};
  cudaKernelNodeParams launch = {};
  launch.func = (void *)affine;
  launch.gridDim = dim3(blocks);
  launch.blockDim = dim3(128);
  launch.kernelParams = params;
  cudaGraph_t graph;
  CUDA(cudaGraphCreate(&graph, 0));
  CUDA(cudaGraphAddHostNode(&made.before, graph, nullptr, 0, &begins));
  CUDA(cudaGraphAddMemcpyNode1D(&made.to_device, graph, &made.before, 1, device, in, nbytes, cudaMemcpyHostToDevice));
  CUDA(cudaGraphAddKernelNode(&made.kernel, graph, &made.to_device, 1, &launch));
  CUDA(cudaGraphAddMemcpyNode1D(&made.to_host, graph, &made.kernel, 1, out, device, nbytes, cudaMemcpyDeviceToHost));
  CUDA(cudaGraphAddHostNode(&made.after, graph, &made.to_host, 1, &ends));
  made.graph = graph;
  return made;
}

static cudaGraphExec_t instantiate(cudaGraph_t graph) {
  cudaGraphExec_t executable;
  CUDA(cudaGraphInstantiate(&executable, graph, 0));
  return executable;
}

// An outer graph that runs `child` twice, one after the other.
static cudaGraph_t twice(cudaGraph_t child) {
  cudaGraph_t outer, inner;
  cudaGraphNode_t one, two;
  cudaGraphNodeType type;
  size_t count = 0;
  CUDA(cudaGraphCreate(&outer, 0));
  CUDA(cudaGraphAddChildGraphNode(&one, outer, nullptr, 0, child));
  CUDA(cudaGraphAddChildGraphNode(&two, outer, &one, 1, child));
  CUDA(cudaGraphNodeGetType(two, &type));
  EXPECT(type == cudaGraphNodeTypeGraph, "graph_host: a child graph has type %d", (int)type);
  CUDA(cudaGraphChildGraphNodeGetGraph(two, &inner));
  CUDA(cudaGraphGetNodes(inner, nullptr, &count));
  EXPECT(count == 5, "graph_host: the child graph has %zu nodes instead of 5", count);
  return outer;
}

// --- pinned memory ---

struct pinned_side {
  unsigned *in, *out;
  unsigned launches, sum;
};

static pinned_side make_pinned() {
  pinned_side side = {};
  CUDA(cudaMallocHost(&side.in, nbytes));
  CUDA(cudaMallocHost(&side.out, nbytes));
  memcpy(side.in, first.data(), nbytes);
  memset(side.out, 0, nbytes);
  return side;
}

static void free_pinned(pinned_side &side) {
  CUDA(cudaFreeHost(side.in));
  CUDA(cudaFreeHost(side.out));
}

// Runs before the copy to the device and changes the copy's source at each launch.
static void write_input(void *argument) {
  pinned_side *side = (pinned_side *)argument;
  side->launches++;
  for (int i = 0; i < n; i++)
    side->in[i] += side->launches;
}

// Runs after the copy from the device.
static void read_output(void *argument) {
  pinned_side *side = (pinned_side *)argument;
  side->sum = 0;
  for (int i = 0; i < n; i++)
    side->sum += side->out[i];
}

static void check(const pinned_side &side, unsigned launches, unsigned factor, const char *what) {
  EXPECT(side.launches == launches, "graph_host: %s: %u launches instead of %u", what, side.launches, launches);
  unsigned added = launches * (launches + 1) / 2, sum = 0;
  for (int i = 0; i < n; i++) {
    unsigned expected = (first[i] + added) * factor + 7;
    EXPECT(side.out[i] == expected, "graph_host: %s: element %d is %u instead of %u", what, i, side.out[i], expected);
    sum += expected;
  }
  EXPECT(side.sum == sum, "graph_host: %s: the host function saw the sum %u instead of %u", what, side.sum, sum);
}

static void launch_pinned(cudaGraphExec_t executable, int times) {
  for (int i = 0; i < times; i++)
    CUDA(cudaGraphLaunch(executable, stream));
  CUDA(cudaStreamSynchronize(stream));
}

static void with_pinned_memory() {
  pinned_side side = make_pinned(), other = make_pinned(), built = make_pinned(), changed = make_pinned();
  cudaGraph_t captured = capture(write_input, read_output, &side, side.in, side.out, 3);
  cudaGraphExec_t executable = instantiate(captured);
  EXPECT(side.launches == 0 && !memcmp(side.in, first.data(), nbytes), "graph_host: a captured host function ran");
  launch_pinned(executable, 4);
  check(side, 4, 3, "captured");

  // An update from another capture gives the executable graph other parameters and other memory.
  cudaGraph_t second = capture(write_input, read_output, &other, other.in, other.out, 5);
  cudaGraphExecUpdateResultInfo info;
  CUDA(cudaGraphExecUpdate(executable, second, &info));
  CUDA(cudaGraphDestroy(second));
  launch_pinned(executable, 1);
  check(other, 1, 5, "updated");
  check(side, 4, 3, "before the update");
  CUDA(cudaGraphExecDestroy(executable));

  // A clone of the graph, twice in an outer graph.
  cudaGraph_t clone;
  CUDA(cudaGraphClone(&clone, captured));
  CUDA(cudaGraphDestroy(captured));
  cudaGraph_t outer = twice(clone);
  CUDA(cudaGraphDestroy(clone));
  executable = instantiate(outer);
  CUDA(cudaGraphDestroy(outer));
  launch_pinned(executable, 1);
  check(side, 6, 3, "child graphs");
  CUDA(cudaGraphExecDestroy(executable));

  // A graph built node by node.
  nodes made = build(write_input, read_output, &built, built.in, built.out, 11);
  cudaHostNodeParams got = {};
  cudaGraphNodeType type;
  cudaGraphNode_t cloned;
  CUDA(cudaGraphHostNodeGetParams(made.before, &got));
  EXPECT(got.fn == write_input && got.userData == &built, "graph_host: a host node has other parameters");
  CUDA(cudaGraphNodeGetType(made.to_host, &type));
  EXPECT(type == cudaGraphNodeTypeMemcpy, "graph_host: a copy has type %d", (int)type);
  CUDA(cudaGraphClone(&clone, made.graph));
  CUDA(cudaGraphNodeFindInClone(&cloned, made.before, clone));
  EXPECT(cloned != made.before, "graph_host: a clone's node is the original's");
  CUDA(cudaGraphDestroy(clone));
  executable = instantiate(made.graph);
  launch_pinned(executable, 3);
  check(built, 3, 11, "built");

  // The copies and host functions of the executable graph get other memory.
  cudaHostNodeParams writes = {write_input, &changed}, reads = {read_output, &changed};
  CUDA(cudaGraphExecHostNodeSetParams(executable, made.before, &writes));
  CUDA(cudaGraphExecHostNodeSetParams(executable, made.after, &reads));
  CUDA(cudaGraphExecMemcpyNodeSetParams1D(executable, made.to_device, device, changed.in, nbytes,
                                          cudaMemcpyHostToDevice));
  CUDA(cudaGraphExecMemcpyNodeSetParams1D(executable, made.to_host, changed.out, device, nbytes,
                                          cudaMemcpyDeviceToHost));
  launch_pinned(executable, 1);
  check(built, 3, 11, "before its parameters were changed");
  check(changed, 1, 11, "with other parameters");
  CUDA(cudaGraphExecDestroy(executable));
  CUDA(cudaGraphDestroy(made.graph));
  for (pinned_side *each : {&side, &other, &built, &changed})
    free_pinned(*each);
}

// --- pageable memory ---

// Slows the replay down, so that a missing wait becomes visible.
static void dawdle(void *) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }
static void count(void *argument) { ++*(unsigned *)argument; }

// Launch several times, and use the memory of each launch as soon as the launch has returned.
static void launch_pageable(cudaGraphExec_t executable, std::vector<unsigned> &in, std::vector<unsigned> &out,
                            unsigned factor, const char *what) {
  for (unsigned launch = 1; launch <= 3; launch++) {
    for (int i = 0; i < n; i++)
      in[i] = first[i] + launch;
    out.assign(n, 0);
    CUDA(cudaGraphLaunch(executable, stream));
    in.assign(n, launch);
    for (int i = 0; i < n; i++) {
      unsigned expected = (first[i] + launch) * factor + 7;
      EXPECT(out[i] == expected, "graph_host: pageable, %s: element %d is %u instead of %u", what, i, out[i], expected);
    }
  }
  CUDA(cudaStreamSynchronize(stream));
}

static void with_pageable_memory() {
  std::vector<unsigned> in(n), out(n), other_in(n), other_out(n);
  unsigned replays = 0, other_replays = 0;
  cudaGraph_t captured = capture(dawdle, count, &replays, in.data(), out.data(), 3);
  cudaGraphExec_t executable = instantiate(captured);
  launch_pageable(executable, in, out, 3, "captured");
  EXPECT(replays == 3, "graph_host: pageable: %u replays instead of 3", replays);

  cudaGraph_t second = capture(dawdle, count, &other_replays, other_in.data(), other_out.data(), 5);
  cudaGraphExecUpdateResultInfo info;
  CUDA(cudaGraphExecUpdate(executable, second, &info));
  CUDA(cudaGraphDestroy(second));
  launch_pageable(executable, other_in, other_out, 5, "updated");
  EXPECT(replays == 3 && other_replays == 3, "graph_host: pageable: %u and %u replays instead of 3 and 3", replays,
         other_replays);
  CUDA(cudaGraphExecDestroy(executable));

  cudaGraph_t outer = twice(captured);
  executable = instantiate(outer);
  CUDA(cudaGraphDestroy(outer));
  CUDA(cudaGraphDestroy(captured));
  launch_pageable(executable, in, out, 3, "child graphs");
  EXPECT(replays == 9, "graph_host: pageable: %u replays instead of 9", replays);
  CUDA(cudaGraphExecDestroy(executable));

  nodes made = build(dawdle, count, &replays, in.data(), out.data(), 11);
  executable = instantiate(made.graph);
  launch_pageable(executable, in, out, 11, "built");
  CUDA(cudaGraphExecMemcpyNodeSetParams1D(executable, made.to_device, device, other_in.data(), nbytes,
                                          cudaMemcpyHostToDevice));
  CUDA(cudaGraphExecMemcpyNodeSetParams1D(executable, made.to_host, other_out.data(), device, nbytes,
                                          cudaMemcpyDeviceToHost));
  launch_pageable(executable, other_in, other_out, 11, "with other parameters");
  EXPECT(replays == 15, "graph_host: pageable: %u replays instead of 15", replays);
  CUDA(cudaGraphExecDestroy(executable));
  CUDA(cudaGraphDestroy(made.graph));
}

int main(int argc, char **argv) {
  vgt_args args = vgt_parse(argc, argv, 2999);
  std::mt19937 random(args.seed);
  n = args.size;
  blocks = (n + 127) / 128;
  nbytes = n * sizeof(unsigned);
  first = vgt_words(random, n);
  CUDA(cudaMalloc(&device, nbytes));
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  with_pinned_memory();
  with_pageable_memory();
  CUDA(cudaFree(device));
  CUDA(cudaStreamDestroy(stream));
  printf("ok graph_host n=%d\n", n);
  return 0;
}
