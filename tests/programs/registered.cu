// Registered memory of the program's own (NR07): kernels access memory that is mapped for the device in place. Files
// that several processes map, read-only memory, and memory that other threads write to meanwhile.
#include <atomic>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
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
  unsigned *copy; // copies from and to registered memory still work
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

__global__ void sum(const unsigned *p, int n, unsigned *total) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    atomicAdd(total, p[i]);
}

// As NCCL does: an unlinked file in /dev/shm whose size is not a multiple of the page size.
static void shared_file(int n) {
  char name[] = "/dev/shm/vgt-registered-XXXXXX";
  int file = mkstemp(name);
  size_t nbytes = n * sizeof(unsigned);
  EXPECT(file >= 0 && ftruncate(file, nbytes + 4096) == 0, "registered: no file in /dev/shm");
  unsigned *p = (unsigned *)mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 4096);
  const unsigned *constant = (const unsigned *)mmap(nullptr, nbytes, PROT_READ, MAP_SHARED, file, 4096);
  unlink(name);
  use(p, n, 5, "a file");
  unsigned *device = nullptr, *total, found = 0;
  CUDA(cudaHostRegister(p, nbytes, cudaHostRegisterMapped | cudaHostRegisterPortable));
  CUDA(cudaHostGetDevicePointer(&device, p, 0));
  pid_t child = fork(); // the device sees another process's writes, and that process the device's
  if (child == 0) {
    for (int i = 0; i < n; i++)
      p[i] = i;
    _exit(0);
  }
  int status;
  EXPECT(waitpid(child, &status, 0) == child && status == 0, "registered: the child failed");
  bump<<<(n + 127) / 128, 128>>>(device, n);
  CUDA(cudaDeviceSynchronize());
  child = fork();
  if (child == 0) {
    bool right = true;
    for (int i = 0; i < n; i++)
      right &= p[i] == 2u * i + 1;
    _exit(!right);
  }
  EXPECT(waitpid(child, &status, 0) == child && status == 0, "registered: the child sees other values");
  EXPECT_ERROR(cudaHostRegister((void *)constant, nbytes, cudaHostRegisterMapped), cudaErrorInvalidValue);
  cudaGetLastError();
  CUDA(cudaHostRegister((void *)constant, nbytes, cudaHostRegisterMapped | cudaHostRegisterReadOnly));
  CUDA(cudaHostGetDevicePointer(&device, (void *)constant, 0));
  CUDA(cudaMalloc(&total, 4));
  CUDA(cudaMemset(total, 0, 4));
  sum<<<(n + 127) / 128, 128>>>(device, n, total);
  CUDA(cudaMemcpy(&found, total, 4, cudaMemcpyDeviceToHost));
  EXPECT(found == (unsigned)n * (unsigned)n, "registered: the sum of read-only memory is %u", found);
  CUDA(cudaMemcpyAsync(total, constant + n - 1, 4, cudaMemcpyHostToDevice));
  CUDA(cudaMemcpy(&found, total, 4, cudaMemcpyDeviceToHost));
  EXPECT(found == 2u * n - 1, "registered: the copy of read-only memory is %u", found);
  CUDA(cudaFree(total));
  CUDA(cudaHostUnregister((void *)constant));
  CUDA(cudaHostUnregister(p));
  munmap(p, nbytes);
  munmap((void *)constant, nbytes);
  close(file);
}

// Each thread writes rising numbers to its own elements, which must hold its last number in the end.
static void written_meanwhile() {
  const int threads = 3, n = 1 << 18;
  unsigned *p = (unsigned *)aligned_alloc(4096, n * sizeof *p), last[threads];
  std::atomic<bool> stop{false};
  std::atomic<int> writing{0};
  std::vector<std::thread> writers;
  memset(p, 0, n * sizeof *p);
  for (int t = 0; t < threads; t++)
    writers.emplace_back([=, &stop, &writing, &last] {
      unsigned turn = 0;
      do {
        for (int i = t; i < n; i += 1024)
          ((volatile unsigned *)p)[i] = turn;
        last[t] = turn;
        if (turn++ == 0)
          writing++;
      } while (!stop);
    });
  while (writing < threads) // a busy machine may start a thread late
    std::this_thread::yield();
  for (int round = 0; round < 8; round++) {
    CUDA(cudaHostRegister(p, n * sizeof *p, cudaHostRegisterMapped));
    CUDA(cudaHostUnregister(p));
  }
  stop = true;
  for (auto &writer : writers)
    writer.join();
  for (int t = 0; t < threads; t++)
    for (int i = t; i < n; i += 1024)
      EXPECT(p[i] == last[t], "registered: a write of thread %d to element %d is lost: %u of %u", t, i, p[i], last[t]);
  free(p);
}

// Variables on a stack: copies in stream order, a forked child that has its own, another thread's stack.
static void on_stacks() {
  unsigned local[64] = {}, *device = nullptr, *there = nullptr;
  cudaStream_t stream;
  CUDA(cudaStreamCreate(&stream));
  CUDA(cudaMalloc(&there, sizeof local));
  CUDA(cudaHostRegister(local, sizeof local, cudaHostRegisterMapped));
  CUDA(cudaHostGetDevicePointer(&device, local, 0));
  for (unsigned round = 0; round < 3; round++) {
    for (int i = 0; i < 64; i++)
      local[i] = 100 * round;
    bump<<<1, 64, 0, stream>>>(device, 64);
    CUDA(cudaMemcpyAsync(there, local, sizeof local, cudaMemcpyHostToDevice, stream)); // what the kernel has written
    bump<<<1, 64, 0, stream>>>(there, 64);
    CUDA(cudaMemcpyAsync(local, there, sizeof local, cudaMemcpyDeviceToHost, stream));
    bump<<<1, 64, 0, stream>>>(device, 64); // what the copy has written
    CUDA(cudaStreamSynchronize(stream));
    for (unsigned i = 0; i < 64; i++)
      EXPECT(local[i] == 100 * round + 3 * (i + 1), "registered: a stack: round %u, element %u is %u", round, i,
             local[i]);
  }
  pid_t child = fork();
  if (child == 0) {
    ((volatile unsigned *)local)[0] = 12345;
    _exit(0);
  }
  int status;
  EXPECT(waitpid(child, &status, 0) == child && local[0] != 12345, "registered: a child's write to its stack is seen");
  CUDA(cudaHostUnregister(local));
  CUDA(cudaFree(there));
  CUDA(cudaStreamDestroy(stream));
  std::thread([] {
    unsigned own[300];
    use(own, 300, 11, "a thread's stack");
  }).join();
}

// What vgpu refuses with cudaErrorNotSupported, where NVIDIA's driver accesses the memory in place.
static void limits(void *constant) {
  // A mapping of a file on a disk.
  EXPECT_ERROR(cudaHostRegister(constant, 4096, cudaHostRegisterReadOnly | cudaHostRegisterMapped),
               cudaErrorNotSupported);
  cudaGetLastError();
  unsigned *unmapped = (unsigned *)aligned_alloc(4096, 4096), *none = nullptr; // registered without Mapped
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
  unsigned char *heap = (unsigned char *)malloc(n * 4 + 200); // shares its first and last page with other data
  memset(heap, 0xa5, n * 4 + 200);
  use((unsigned *)(heap + 100 / 4 * 4), n, 7, "within pages");
  for (int i = 0; i < 100; i++)
    EXPECT(heap[i] == 0xa5 && heap[n * 4 + 100 + i] == 0xa5, "registered: data beside it has changed at %d", i);
  pid_t child = fork(); // memory that is no longer registered is copied for the child
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
  shared_file(30011);
  written_meanwhile();
  int same_address = 0, copies = 0; // NVIDIA's driver: the device uses host addresses of registered memory
  CUDA(cudaDeviceGetAttribute(&copies, cudaDevAttrConcurrentManagedAccess, 0));
  copies = !copies;    // a channel without shared memory, where kernels access copies of any memory
  unsigned local[300]; // shared with nobody: kernels access a copy on any channel
  use(local, 300, 9, "a stack");
  on_stacks();
  CUDA(cudaDeviceGetAttribute(&same_address, cudaDevAttrCanUseHostPointerForRegisteredMem, 0));
  if (!same_address && !copies)
    limits(constant);
  free(heap);
  free(aligned);
  printf("ok registered\n");
  return 0;
}
