// Two devices (NR05): copies between them in every form, with and without peer access, ordered with both devices' work.
#include "vgt_check.h"

__global__ void fill(unsigned *p, int n, unsigned seed) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    p[i] = seed + i;
}

static unsigned *on(int device, size_t nbytes) {
  unsigned *p;
  CUDA(cudaSetDevice(device));
  CUDA(cudaMalloc(&p, nbytes));
  return p;
}

static void check(const unsigned *device, int n, unsigned seed, const char *what) {
  std::vector<unsigned> values(n);
  CUDA(cudaMemcpy(values.data(), device, n * sizeof(unsigned), cudaMemcpyDeviceToHost));
  for (int i = 0; i < n; i++)
    EXPECT(values[i] == seed + i, "peers: %s: element %d is %u", what, i, values[i]);
}

int main(int argc, char **argv) {
  vgt_args args = vgt_parse(argc, argv, 100003);
  int n = args.size, count, blocks = (n + 255) / 256;
  size_t nbytes = n * sizeof(unsigned);
  CUDA(cudaGetDeviceCount(&count));
  EXPECT(count >= 2, "peers: needs two devices");
  unsigned *first = on(0, nbytes), *second = on(1, nbytes);
  for (unsigned round = 0; round < 5; round++) {
    CUDA(cudaSetDevice(1));
    fill<<<blocks, 256>>>(second, n, round); // the copy is ordered after the fill, whichever device is current
    CUDA(cudaSetDevice(0));
    CUDA(cudaMemcpyPeer(first, 0, second, 1, nbytes));
    check(first, n, round, "cudaMemcpyPeer");
  }
  CUDA(cudaSetDevice(0));
  cudaStream_t stream;
  CUDA(cudaStreamCreate(&stream));
  fill<<<blocks, 256, 0, stream>>>(first, n, 77);
  CUDA(cudaMemcpyPeerAsync(second, 1, first, 0, nbytes, stream));
  CUDA(cudaStreamSynchronize(stream));
  check(second, n, 77, "cudaMemcpyPeerAsync");
  fill<<<blocks, 256>>>(first, n, 99);
  CUDA(cudaDeviceSynchronize());
  CUDA(cudaMemcpy(second, first, nbytes, cudaMemcpyDefault));
  CUDA(cudaDeviceSynchronize());
  check(second, n, 99, "cudaMemcpy");
  cudaMemcpy3DPeerParms box = {};
  box.srcDevice = 0;
  box.dstDevice = 1;
  box.srcPtr = make_cudaPitchedPtr(first, nbytes, nbytes, 1);
  box.dstPtr = make_cudaPitchedPtr(second, nbytes, nbytes, 1);
  box.extent = make_cudaExtent(nbytes, 1, 1);
  fill<<<blocks, 256>>>(first, n, 123);
  CUDA(cudaMemcpy3DPeer(&box));
  CUDA(cudaDeviceSynchronize());
  check(second, n, 123, "cudaMemcpy3DPeer");
  printf("ok peers\n");
  return 0;
}
