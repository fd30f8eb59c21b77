// Prints the properties of each device, and checks that different queries of a property agree.
#include <cstring>

#include "vgt_check.h"

int main() {
  int count = 0, driver = 0, runtime = 0, value = 0;
  CUDA(cudaGetDeviceCount(&count));
  CUDA(cudaDriverGetVersion(&driver));
  CUDA(cudaRuntimeGetVersion(&runtime));
  EXPECT(count > 0 && driver >= runtime, "properties: %d devices, driver %d, runtime %d", count, driver, runtime);
  for (int device = 0; device < count; device++) {
    // The bytes behind the structure must survive: runtime and program must agree on the structure's size.
    struct {
      cudaDeviceProp properties;
      unsigned char canary[64];
    } guarded;
    memset(&guarded, 0xcd, sizeof guarded);
    CUDA(cudaGetDeviceProperties(&guarded.properties, device));
    for (unsigned char byte : guarded.canary)
      EXPECT(byte == 0xcd, "properties: bytes behind the structure were written");
    const cudaDeviceProp &is = guarded.properties;
    CUDA(cudaSetDevice(device));
    CUDA(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, device));
    EXPECT(value == is.major, "properties: compute capability %d and %d", value, is.major);
    CUDA(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, device));
    EXPECT(value == is.multiProcessorCount, "properties: %d and %d SMs", value, is.multiProcessorCount);
    CUDA(cudaDeviceGetAttribute(&value, cudaDevAttrMaxThreadsPerBlock, device));
    EXPECT(value == is.maxThreadsPerBlock && value >= 1024, "properties: %d threads a block", value);
    EXPECT(is.warpSize == 32, "properties: warps of %d", is.warpSize);
    size_t available = 0, total = 0;
    CUDA(cudaMemGetInfo(&available, &total));
    EXPECT(available > 0 && available <= total && total <= is.totalGlobalMem,
           "properties: %zu of %zu bytes available, %zu said", available, total, is.totalGlobalMem);
    char address[32] = "";
    int again = -1;
    CUDA(cudaDeviceGetPCIBusId(address, sizeof address, device));
    CUDA(cudaDeviceGetByPCIBusId(&again, address));
    EXPECT(again == device, "properties: device %d has the address of device %d", device, again);
    printf("device %d: %s, compute capability %d.%d, %d SMs, %zu MiB, %s\n", device, is.name, is.major, is.minor,
           is.multiProcessorCount, is.totalGlobalMem >> 20, address);
  }
  printf("ok properties devices=%d driver=%d runtime=%d\n", count, driver, runtime);
  return 0;
}
