// Whether the pages of a __managed__ variable can be replaced by memory that is shared with another process and
// registered with the driver at the same address: what vgpud's worker would have to do.
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

#include <cuda.h>
#include <cuda_runtime.h>

__managed__ int first[1024];
__managed__ int counter = 5;
__global__ void add(int *also) {
  counter += 1;
  first[3] = counter;
  *also = counter;
}

static void maps(uintptr_t address) {
  char line[512];
  FILE *file = fopen("/proc/self/maps", "r");
  while (fgets(line, sizeof line, file)) {
    uintptr_t from = 0, to = 0;
    sscanf(line, "%lx-%lx", &from, &to);
    if (address >= from && address < to)
      printf("  %s", line);
  }
  fclose(file);
}

int main() {
  int *at = nullptr, *also;
  printf("symbol %d\n", (int)cudaGetSymbolAddress((void **)&at, counter));
  cudaMalloc(&also, 4);
  add<<<1, 1>>>(also);
  printf("launch %d: counter %d\n", (int)cudaDeviceSynchronize(), counter);
  int *start = nullptr;
  cudaGetSymbolAddress((void **)&start, first);
  printf("first %p, counter %p\n", (void *)start, (void *)at);
  maps((uintptr_t)at);
  CUdeviceptr base = 0;
  size_t nbytes = 0;
  printf("range %d", (int)cuMemGetAddressRange(&base, &nbytes, (CUdeviceptr)at));
  printf(": %#llx + %zu\n", (unsigned long long)base, nbytes);
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  uintptr_t from = (uintptr_t)base & ~(page - 1), to = ((uintptr_t)base + nbytes + page - 1) & ~(page - 1);
  if (!nbytes)
    from = (uintptr_t)at & ~(page - 1), to = from + page;
  int fd = memfd_create("pages", 0);
  if (ftruncate(fd, (off_t)(to - from)) || pwrite(fd, (void *)from, to - from, 0) != (ssize_t)(to - from))
    printf("saving: %s\n", strerror(errno));
  void *there = mmap((void *)from, to - from, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
  printf("mapped %p for %#lx\n", there, from);
  maps((uintptr_t)at);
  printf("counter then: %d\n", counter);
  cudaError_t error = cudaHostRegister(there, to - from, cudaHostRegisterMapped | cudaHostRegisterPortable);
  printf("register: %s\n", cudaGetErrorName(error));
  void *device = nullptr;
  if (!error)
    printf("device pointer: %d, %p\n", (int)cudaHostGetDevicePointer(&device, there, 0), device);
  cudaGetLastError();
  counter = 100;
  add<<<1, 1>>>(also);
  error = cudaDeviceSynchronize();
  printf("launch: %s, counter %d, first[3] %d\n", cudaGetErrorName(error), counter, first[3]);
  int seen = 0;
  cudaMemcpy(&seen, also, 4, cudaMemcpyDeviceToHost);
  printf("the device saw %d\n", seen);
  return 0;
}
