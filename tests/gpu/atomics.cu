// Host and device add to one word at once, as NVIDIA's sample systemWideAtomics does: how many of the sums are lost, by
// kind of memory. Natively and remoted: `nvcc -arch=sm_90 -o atomics atomics.cu && ./atomics`.
#include <cstdio>
#include <cstdlib>

static const int BLOCKS = 64, THREADS = 256, LOOPS = 50, HOST_ADDS = 1000000, ROUNDS = 5;

__global__ void add(unsigned *word) {
  for (int i = 0; i < LOOPS; i++)
    atomicAdd_system(word, 1);
}

static int attribute(cudaDeviceAttr which) {
  int value = -1;
  cudaDeviceGetAttribute(&value, which, 0);
  return value;
}

static void use(const char *kind, unsigned *host, unsigned *device, bool by_host, bool by_device) {
  printf("%s, %s%s%s: lost", kind, by_host ? "host" : "", by_host && by_device ? " and " : "",
         by_device ? "device" : "");
  for (int round = 0; round < ROUNDS; round++) {
    unsigned expected = (by_host ? HOST_ADDS : 0) + (by_device ? BLOCKS * THREADS * LOOPS : 0);
    *host = 0;
    if (by_device)
      add<<<BLOCKS, THREADS>>>(device);
    for (int i = 0; by_host && i < HOST_ADDS; i++)
      __sync_fetch_and_add(host, 1);
    cudaError_t error = cudaDeviceSynchronize();
    if (error) {
      printf(" error %d\n", (int)error);
      exit(1);
    }
    printf(" %u", expected - *host);
  }
  printf(" of %d\n", (by_host ? HOST_ADDS : 0) + (by_device ? BLOCKS * THREADS * LOOPS : 0));
  fflush(stdout);
}

int main() {
  unsigned *managed = nullptr, *pinned = nullptr, *device = nullptr;
  printf("managed memory %d, concurrent %d, pageable %d, host native atomics %d\n", attribute(cudaDevAttrManagedMemory),
         attribute(cudaDevAttrConcurrentManagedAccess), attribute(cudaDevAttrPageableMemoryAccess),
         attribute(cudaDevAttrHostNativeAtomicSupported));
  if (cudaMallocManaged(&managed, 4096) || cudaHostAlloc(&pinned, 4096, cudaHostAllocMapped) ||
      cudaHostGetDevicePointer(&device, pinned, 0))
    return 1;
  for (int both = 1; both <= 3; both++) {
    use("pinned", pinned, device, both & 1, both & 2);
    use("managed", managed, managed, both & 1, both & 2);
  }
  return 0;
}
