// Registered memory of the program's own (NR07): what is mapped for the device is reached by kernels, in place.
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "vgt_check.h"

__global__ void bump(unsigned *p, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    p[i] += i + 1;
}

static void use(unsigned *p, int n, unsigned before, const char *what) {
  unsigned *device = nullptr, flags = 0;
  cudaPointerAttributes a;
  CUDA(cudaHostRegister(p, n * sizeof *p, cudaHostRegisterMapped));
  EXPECT_ERROR(cudaHostRegister(p, 4, 0), cudaErrorHostMemoryAlreadyRegistered);
  cudaGetLastError();
  CUDA(cudaHostGetDevicePointer(&device, p, 0));
  CUDA(cudaPointerGetAttributes(&a, p + n / 2));
  EXPECT(a.type == cudaMemoryTypeHost && a.devicePointer == device + n / 2, "registered: %s: attributes", what);
  CUDA(cudaHostGetFlags(&flags, p));
  EXPECT(flags & cudaHostAllocMapped, "registered: %s: flags %u", what, flags);
  for (int i = 0; i < n; i++)
    p[i] = before + i;
  bump<<<(n + 127) / 128, 128>>>(device, n);
  CUDA(cudaDeviceSynchronize());
  for (int i = 0; i < n; i++)
    EXPECT(p[i] == before + 2 * i + 1, "registered: %s: element %d is %u", what, i, p[i]);
  unsigned *copy; // copies of it travel as before
  CUDA(cudaMalloc(&copy, n * sizeof *p));
  CUDA(cudaMemcpy(copy, p, n * sizeof *p, cudaMemcpyHostToDevice));
  memset(p, 0, n * sizeof *p);
  CUDA(cudaMemcpy(p, copy, n * sizeof *p, cudaMemcpyDeviceToHost));
  CUDA(cudaFree(copy));
  CUDA(cudaHostUnregister(p));
  EXPECT(p[0] == before + 1 && p[n - 1] == before + 2 * n - 1, "registered: %s: lost when unregistered", what);
  EXPECT_ERROR(cudaHostUnregister(p), cudaErrorHostMemoryNotRegistered);
  cudaGetLastError();
}

// What vgpu refuses by name, where NVIDIA's driver reads the memory in place.
static void limits(void *constant) {
  EXPECT_ERROR(cudaHostRegister(constant, 4096, cudaHostRegisterReadOnly), cudaErrorNotSupported);
  cudaGetLastError();
  unsigned local[4]; // a thread's stack cannot be moved
  EXPECT_ERROR(cudaHostRegister(local, sizeof local, cudaHostRegisterMapped), cudaErrorNotSupported);
  cudaGetLastError();
  unsigned *unmapped = (unsigned *)aligned_alloc(4096, 4096), *none = nullptr; // nobody asked for an address
  CUDA(cudaHostRegister(unmapped, 4096, 0));
  EXPECT_ERROR(cudaHostGetDevicePointer(&none, unmapped, 0), cudaErrorNotSupported);
  cudaGetLastError();
  CUDA(cudaHostUnregister(unmapped));
  free(unmapped);
}

int main(int argc, char **argv) {
  vgt_args args = vgt_parse(argc, argv, 300007);
  int n = args.size, supported = 0;
  CUDA(cudaDeviceGetAttribute(&supported, cudaDevAttrHostRegisterSupported, 0));
  EXPECT(supported == 1, "registered: not supported");
  unsigned *aligned = (unsigned *)aligned_alloc(4096, (n * 4 + 4095) / 4096 * 4096);
  for (unsigned round = 0; round < 5; round++)
    use(aligned, n, 1000 * round, "whole pages");
  unsigned char *heap = (unsigned char *)malloc(n * 4 + 200); // in the midst of other data
  memset(heap, 0xa5, n * 4 + 200);
  use((unsigned *)(heap + 100 / 4 * 4), n, 7, "within pages");
  for (int i = 0; i < 100; i++)
    EXPECT(heap[i] == 0xa5 && heap[n * 4 + 100 + i] == 0xa5, "registered: data beside it has changed at %d", i);
  pid_t child = fork(); // memory that was registered is the child's own again
  if (child == 0) {
    aligned[0] = 99;
    _exit(0);
  }
  int status;
  EXPECT(waitpid(child, &status, 0) == child && aligned[0] != 99, "registered: a child's write is seen");
  int file = open("/proc/self/exe", O_RDONLY);
  void *constant = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file, 0);
  EXPECT_ERROR(cudaHostRegister(constant, 4096, 0), cudaErrorInvalidValue);
  EXPECT_ERROR(cudaHostRegister((void *)4096, 4096, 0), cudaErrorInvalidValue);
  cudaGetLastError();
  int same_address = 0; // a card's own driver: any memory is the device's at its own address
  CUDA(cudaDeviceGetAttribute(&same_address, cudaDevAttrCanUseHostPointerForRegisteredMem, 0));
  if (!same_address)
    limits(constant);
  free(heap);
  free(aligned);
  printf("ok registered\n");
  return 0;
}
