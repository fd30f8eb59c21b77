// Two devices that access each other's memory: peer access of contexts, of pools and of mapped memory, and calls that
// must be refused.
#include <cuda.h>

#include "vgt_check.h"

static void *entry(const char *name) {
  void *function;
  cudaDriverEntryPointQueryResult found;
  CUDA(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found));
  EXPECT(found == cudaDriverEntryPointSuccess, "two_devices: no %s", name);
  return function;
}

// Calls the driver's function `name`, which must succeed.
#define DRIVER(name, ...) EXPECT(((decltype(&name))entry(#name))(__VA_ARGS__) == CUDA_SUCCESS, "two_devices: %s", #name)

__global__ void add(unsigned *to, const unsigned *from, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    to[i] += from[i];
}

__global__ void fill(unsigned *p, int n, unsigned seed) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    p[i] = seed + i;
}

static void check(const unsigned *device, int n, unsigned seed, unsigned factor, const char *what) {
  std::vector<unsigned> values(n);
  CUDA(cudaMemcpy(values.data(), device, n * sizeof(unsigned), cudaMemcpyDefault));
  for (int i = 0; i < n; i++)
    EXPECT(values[i] == seed + factor * i, "two_devices: %s: element %d is %u", what, i, values[i]);
}

static void contexts(int n) {
  unsigned *own, *peer;
  int blocks = (n + 255) / 256;
  CUDA(cudaSetDevice(1));
  CUDA(cudaMalloc(&peer, n * sizeof *peer));
  fill<<<blocks, 256>>>(peer, n, 10);
  CUDA(cudaDeviceSynchronize());
  CUDA(cudaSetDevice(0));
  CUDA(cudaMalloc(&own, n * sizeof *own));
  EXPECT_ERROR(cudaDeviceEnablePeerAccess(1, 1), cudaErrorInvalidValue);
  EXPECT_ERROR(cudaDeviceDisablePeerAccess(1), cudaErrorPeerAccessNotEnabled);
  CUDA(cudaDeviceEnablePeerAccess(1, 0));
  EXPECT_ERROR(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
  cudaGetLastError();
  fill<<<blocks, 256>>>(own, n, 5);
  add<<<blocks, 256>>>(own, peer, n); // a kernel on the first device reads the second's memory
  add<<<blocks, 256>>>(peer, own, n); // and writes to it
  CUDA(cudaDeviceSynchronize());
  check(own, n, 15, 2, "own memory");
  check(peer, n, 25, 3, "a peer's memory");
  CUDA(cudaDeviceDisablePeerAccess(1));
  CUDA(cudaFree(own));
  CUDA(cudaFree(peer));
}

static void pools(int n) {
  cudaMemPool_t pool;
  cudaMemPoolProps props = {};
  cudaMemAccessDesc access = {{cudaMemLocationTypeDevice, 0}, cudaMemAccessFlagsProtReadWrite};
  cudaMemAccessFlags flags;
  cudaStream_t stream;
  unsigned *memory;
  CUDA(cudaSetDevice(1));
  props.allocType = cudaMemAllocationTypePinned;
  props.location = {cudaMemLocationTypeDevice, 1};
  CUDA(cudaMemPoolCreate(&pool, &props));
  CUDA(cudaMemPoolGetAccess(&flags, pool, &access.location));
  EXPECT(flags == cudaMemAccessFlagsProtNone, "two_devices: a new pool says %d", flags);
  CUDA(cudaMemPoolSetAccess(pool, &access, 1));
  CUDA(cudaMemPoolGetAccess(&flags, pool, &access.location));
  EXPECT(flags == cudaMemAccessFlagsProtReadWrite, "two_devices: the pool says %d", flags);
  CUDA(cudaMemPoolGetAccess(&flags, pool, &props.location));
  EXPECT(flags == cudaMemAccessFlagsProtReadWrite, "two_devices: for its own device the pool says %d", flags);
  CUDA(cudaStreamCreate(&stream));
  CUDA(cudaMallocFromPoolAsync(&memory, n * sizeof *memory, pool, stream));
  CUDA(cudaStreamSynchronize(stream));
  CUDA(cudaSetDevice(0));
  fill<<<(n + 255) / 256, 256>>>(memory, n, 3);
  CUDA(cudaDeviceSynchronize());
  check(memory, n, 3, 1, "a pool");
  CUDA(cudaFreeAsync(memory, stream));
  CUDA(cudaStreamSynchronize(stream));
  CUDA(cudaStreamDestroy(stream));
  access.flags = cudaMemAccessFlagsProtNone;
  CUDA(cudaMemPoolSetAccess(pool, &access, 1));
  access.location.id = 7;
  EXPECT_ERROR(cudaMemPoolSetAccess(pool, &access, 1), cudaErrorInvalidDevice);
  cudaGetLastError();
  CUDA(cudaMemPoolDestroy(pool));
}

// As NCCL does within one process: memory of one device is mapped with access for the other device alone.
static void mapped(int n) {
  CUmemAllocationProp prop = {};
  CUmemGenericAllocationHandle handle;
  CUdeviceptr address;
  size_t granule, nbytes = n * sizeof(unsigned);
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, {0}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  unsigned long long flags;
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = 1;
  DRIVER(cuMemGetAllocationGranularity, &granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  nbytes = (nbytes + granule - 1) / granule * granule;
  DRIVER(cuMemCreate, &handle, nbytes, &prop, 0);
  DRIVER(cuMemAddressReserve, &address, nbytes, 0, 0, 0);
  DRIVER(cuMemMap, address, nbytes, 0, handle, 0);
  DRIVER(cuMemSetAccess, address, nbytes, &access, 1);
  DRIVER(cuMemGetAccess, &flags, &access.location, address);
  EXPECT(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "two_devices: mapped memory says %llu", flags);
  DRIVER(cuMemGetAccess, &flags, &prop.location, address);
  EXPECT(flags == 0, "two_devices: mapped memory says %llu of its own device", flags);
  CUDA(cudaSetDevice(0));
  fill<<<(n + 255) / 256, 256>>>((unsigned *)address, n, 9);
  CUDA(cudaDeviceSynchronize());
  check((unsigned *)address, n, 9, 1, "mapped memory");
  DRIVER(cuMemUnmap, address, nbytes);
  DRIVER(cuMemAddressFree, address, nbytes);
  DRIVER(cuMemRelease, handle);
}

__global__ void sum_shared(unsigned *to, int n) {
  extern __shared__ unsigned values[];
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    values[i] = i;
  __syncthreads();
  if (threadIdx.x == 0)
    for (int i = 0; i < n; i++)
      to[0] += values[i];
}

// The attributes of a kernel are set for each device separately.
static void attributes() {
  const int nbytes = 100000, n = nbytes / (int)sizeof(unsigned);
  for (int device = 0; device < 2; device++) {
    cudaFuncAttributes found;
    unsigned *sum, value;
    CUDA(cudaSetDevice(device));
    CUDA(cudaFuncGetAttributes(&found, sum_shared));
    EXPECT(found.maxDynamicSharedSizeBytes < nbytes, "two_devices: set on device %d before", device);
    CUDA(cudaMalloc(&sum, sizeof *sum));
    CUDA(cudaMemset(sum, 0, sizeof *sum));
    sum_shared<<<1, 64, nbytes>>>(sum, n);
    EXPECT_ERROR(cudaGetLastError(), cudaErrorInvalidValue);
    CUDA(cudaFuncSetAttribute(sum_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, nbytes));
    CUDA(cudaFuncGetAttributes(&found, sum_shared));
    EXPECT(found.maxDynamicSharedSizeBytes == nbytes, "two_devices: not set on device %d", device);
    sum_shared<<<1, 64, nbytes>>>(sum, n);
    CUDA(cudaGetLastError());
    CUDA(cudaMemcpy(&value, sum, sizeof value, cudaMemcpyDefault));
    EXPECT(value == (unsigned)n * (n - 1) / 2, "two_devices: the sum on device %d is %u", device, value);
    CUDA(cudaFree(sum));
  }
}

int main(int argc, char **argv) {
  vgt_args args = vgt_parse(argc, argv, 100003);
  int count, reach, value;
  CUDA(cudaGetDeviceCount(&count));
  EXPECT(count >= 2, "two_devices: needs two devices");
  CUDA(cudaDeviceCanAccessPeer(&reach, 0, 0));
  EXPECT(!reach, "two_devices: a device is its own peer");
  CUDA(cudaDeviceCanAccessPeer(&reach, 0, 1));
  EXPECT(reach, "two_devices: the first does not reach the second");
  CUDA(cudaDeviceGetP2PAttribute(&value, cudaDevP2PAttrAccessSupported, 0, 1));
  EXPECT(value == 1, "two_devices: access supported: %d", value);
  EXPECT_ERROR(cudaDeviceGetP2PAttribute(&value, cudaDevP2PAttrAccessSupported, 1, 1), cudaErrorInvalidDevice);
  cudaGetLastError();
  attributes();
  contexts(args.size);
  pools(args.size);
  mapped(args.size);
  printf("ok two_devices\n");
  return 0;
}
