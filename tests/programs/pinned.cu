// Pinned host memory: asynchronous copies, a kernel that reads and writes it in place, and registered memory of the
// program's own.
#include <unistd.h>

#include "vgt_check.h"

__global__ void transform(const unsigned *in, unsigned *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    out[i] = in[i] ^ (i * 2654435761u);
}

static void check(const unsigned *in, const unsigned *out, int n, const char *what) {
  for (int i = 0; i < n; i++)
    EXPECT(out[i] == (in[i] ^ (i * 2654435761u)), "pinned: %s: element %d is wrong", what, i);
}

int main(int argc, char **argv) {
  vgt_args args = vgt_parse(argc, argv, 30011);
  std::mt19937 random(args.seed);
  int n = args.size, blocks = (n + 255) / 256;
  size_t nbytes = n * sizeof(unsigned);
  cudaStream_t stream;
  CUDA(cudaStreamCreate(&stream));

  unsigned *in = nullptr, *out = nullptr, *device_in = nullptr, *device_out = nullptr;
  CUDA(cudaMallocHost(&in, nbytes));
  CUDA(cudaHostAlloc(&out, nbytes, cudaHostAllocPortable));
  CUDA(cudaMalloc(&device_in, nbytes));
  CUDA(cudaMalloc(&device_out, nbytes));
  for (int i = 0; i < n; i++)
    in[i] = random();
  CUDA(cudaMemcpyAsync(device_in, in, nbytes, cudaMemcpyHostToDevice, stream));
  transform<<<blocks, 256, 0, stream>>>(device_in, device_out, n);
  CUDA(cudaMemcpyAsync(out, device_out, nbytes, cudaMemcpyDeviceToHost, stream));
  CUDA(cudaStreamSynchronize(stream));
  check(in, out, n, "copies");
  cudaPointerAttributes attributes;
  CUDA(cudaPointerGetAttributes(&attributes, out + n / 2));
  EXPECT(attributes.type == cudaMemoryTypeHost, "pinned: memory type %d", (int)attributes.type);
  CUDA(cudaPointerGetAttributes(&attributes, device_in));
  EXPECT(attributes.type == cudaMemoryTypeDevice, "pinned: device memory has type %d", (int)attributes.type);

  unsigned *mapped_in = nullptr, *mapped_out = nullptr, *seen_in = nullptr, *seen_out = nullptr;
  CUDA(cudaHostAlloc(&mapped_in, nbytes, cudaHostAllocMapped | cudaHostAllocWriteCombined));
  CUDA(cudaHostAlloc(&mapped_out, nbytes, cudaHostAllocMapped));
  CUDA(cudaHostGetDevicePointer(&seen_in, mapped_in, 0));
  CUDA(cudaHostGetDevicePointer(&seen_out, mapped_out, 0));
  for (int round = 0; round < 3; round++) {
    std::vector<unsigned> values = vgt_words(random, n);
    for (int i = 0; i < n; i++)
      mapped_in[i] = values[i];
    transform<<<blocks, 256, 0, stream>>>(seen_in, seen_out, n);
    CUDA(cudaGetLastError());
    CUDA(cudaStreamSynchronize(stream));
    check(values.data(), mapped_out, n, "mapped");
  }

  size_t page = (size_t)sysconf(_SC_PAGESIZE), registered_nbytes = (nbytes + page - 1) / page * page;
  unsigned *own = (unsigned *)aligned_alloc(page, registered_nbytes);
  for (int i = 0; i < n; i++)
    own[i] = random();
  CUDA(cudaHostRegister(own, registered_nbytes, cudaHostRegisterDefault));
  CUDA(cudaMemcpyAsync(device_in, own, nbytes, cudaMemcpyHostToDevice, stream));
  transform<<<blocks, 256, 0, stream>>>(device_in, device_out, n);
  CUDA(cudaMemcpyAsync(out, device_out, nbytes, cudaMemcpyDeviceToHost, stream));
  CUDA(cudaStreamSynchronize(stream));
  check(own, out, n, "registered");
  CUDA(cudaHostUnregister(own));
  free(own);

  for (unsigned *host : {in, out, mapped_in, mapped_out})
    CUDA(cudaFreeHost(host));
  CUDA(cudaFree(device_in));
  CUDA(cudaFree(device_out));
  CUDA(cudaStreamDestroy(stream));
  printf("ok pinned n=%d\n", n);
  return 0;
}
