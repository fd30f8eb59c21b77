// A captured stream with a fork and a join, replayed; the same graph with changed parameters; and a graph built node by
// node.
#include "vgt_check.h"

__global__ void affine(unsigned *data, int n, unsigned factor, unsigned offset) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    data[i] = data[i] * factor + offset;
}

__global__ void add(unsigned *sum, const unsigned *a, const unsigned *b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    sum[i] = a[i] + b[i];
}

int main(int argc, char **argv) {
  vgt_args args = vgt_parse(argc, argv, 2999);
  std::mt19937 random(args.seed);
  int n = args.size, blocks = (n + 127) / 128;
  size_t nbytes = n * sizeof(unsigned);
  std::vector<unsigned> a = vgt_words(random, n), b = vgt_words(random, n);
  unsigned *da = vgt_upload(a), *db = vgt_upload(b), *sum = nullptr;
  CUDA(cudaMalloc(&sum, nbytes));
  cudaStream_t left, right;
  cudaEvent_t fork, join;
  CUDA(cudaStreamCreateWithFlags(&left, cudaStreamNonBlocking));
  CUDA(cudaStreamCreateWithFlags(&right, cudaStreamNonBlocking));
  CUDA(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
  CUDA(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));

  cudaGraph_t graph;
  cudaGraphExec_t executable;
  CUDA(cudaStreamBeginCapture(left, cudaStreamCaptureModeGlobal));
  CUDA(cudaEventRecord(fork, left));
  CUDA(cudaStreamWaitEvent(right, fork, 0));
  affine<<<blocks, 128, 0, left>>>(da, n, 3, 1);
  affine<<<blocks, 128, 0, right>>>(db, n, 5, 2);
  CUDA(cudaEventRecord(join, right));
  CUDA(cudaStreamWaitEvent(left, join, 0));
  add<<<blocks, 128, 0, left>>>(sum, da, db, n);
  CUDA(cudaStreamEndCapture(left, &graph));
  size_t node_count = 0;
  CUDA(cudaGraphGetNodes(graph, nullptr, &node_count));
  EXPECT(node_count == 3, "graphs: %zu nodes instead of 3", node_count);
  CUDA(cudaGraphInstantiate(&executable, graph, 0));
  // The captured work has not run yet.
  EXPECT(vgt_download(da, n) == a, "graphs: a captured kernel ran");
  int replays = 4;
  for (int replay = 0; replay < replays; replay++)
    CUDA(cudaGraphLaunch(executable, left));
  CUDA(cudaStreamSynchronize(left));
  for (int replay = 0; replay < replays; replay++)
    for (int i = 0; i < n; i++) {
      a[i] = a[i] * 3 + 1;
      b[i] = b[i] * 5 + 2;
    }
  std::vector<unsigned> got = vgt_download(sum, n);
  for (int i = 0; i < n; i++)
    EXPECT(got[i] == a[i] + b[i], "graphs: element %d is %u instead of %u", i, got[i], a[i] + b[i]);
  CUDA(cudaGraphExecDestroy(executable));
  CUDA(cudaGraphDestroy(graph));

  // A graph built node by node: a memset, then a kernel whose parameters are changed after instantiation.
  CUDA(cudaGraphCreate(&graph, 0));
  cudaGraphNode_t clear, kernel;
  cudaMemsetParams zero = {};
  zero.dst = sum;
  zero.elementSize = 4;
  zero.width = n;
  zero.height = 1;
  zero.value = 6;
  CUDA(cudaGraphAddMemsetNode(&clear, graph, nullptr, 0, &zero));
  unsigned factor = 7, offset = 5;
  void *parameters[] = {&sum, &n, &factor, &offset};
  cudaKernelNodeParams launch = {};
  launch.func = (void *)affine;
  launch.gridDim = dim3(blocks);
  launch.blockDim = dim3(128);
  launch.kernelParams = parameters;
  CUDA(cudaGraphAddKernelNode(&kernel, graph, &clear, 1, &launch));
  CUDA(cudaGraphInstantiate(&executable, graph, 0));
  for (int change = 0; change < 2; change++) {
    if (change) {
      offset = 1000;
      CUDA(cudaGraphExecKernelNodeSetParams(executable, kernel, &launch));
    }
    CUDA(cudaGraphLaunch(executable, left));
    CUDA(cudaStreamSynchronize(left));
    got = vgt_download(sum, n);
    for (int i = 0; i < n; i++)
      EXPECT(got[i] == 6 * factor + offset, "graphs: built: element %d is %u", i, got[i]);
  }
  CUDA(cudaGraphExecDestroy(executable));
  CUDA(cudaGraphDestroy(graph));
  printf("ok graphs n=%d\n", n);
  return 0;
}
