// Managed memory (NR09, GR9): one address for host and device, managed variables, advice and prefetches, copies and
// fills, and NVIDIA's introductory tutorial, which checks no errors.
#include <cstring>
#include <unistd.h>

#include "vgt_check.h"

__managed__ int counter = 5;
__managed__ float table[3000] = {1, 2, 3};

__global__ void add(int n, float *x, float *y) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
    y[i] = x[i] + y[i];
}

__global__ void count(int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    atomicAdd(&counter, 1);
  if (i < 3000)
    table[i] += i;
}

static void tutorial(int n) {
  float *x, *y;
  cudaMallocManaged(&x, n * sizeof(float));
  cudaMallocManaged(&y, n * sizeof(float));
  for (int i = 0; i < n; i++) {
    x[i] = 1.0f;
    y[i] = 2.0f;
  }
  add<<<(n + 255) / 256, 256>>>(n, x, y);
  cudaDeviceSynchronize();
  for (int i = 0; i < n; i++)
    EXPECT(y[i] == 3.0f, "managed: element %d is %g", i, y[i]);
  cudaFree(x);
  cudaFree(y);
}

static void variables(int n) {
  EXPECT(counter == 5 && table[1] == 2 && table[2999] == 0, "managed: first contents");
  counter = 7;
  count<<<(n + 255) / 256, 256>>>(n);
  CUDA(cudaDeviceSynchronize());
  EXPECT(counter == 7 + n, "managed: the variable is %d", counter);
  for (int i = 0; i < n && i < 3000; i++)
    EXPECT(table[i] == (i < 3 ? i + 1 : 0) + i, "managed: table[%d] is %g", i, table[i]);
  cudaPointerAttributes a;
  CUDA(cudaPointerGetAttributes(&a, &table[1]));
  EXPECT(a.type == cudaMemoryTypeManaged, "managed: a variable has type %d", (int)a.type);
}

static void copies(int n) {
  size_t nbytes = n * sizeof(unsigned);
  unsigned *managed, *device;
  CUDA(cudaMallocManaged(&managed, nbytes));
  CUDA(cudaMalloc(&device, nbytes));
  CUDA(cudaMemset(managed, 0x5a, nbytes));
  CUDA(cudaDeviceSynchronize());
  EXPECT(managed[n - 1] == 0x5a5a5a5a, "managed: fill");
  std::vector<unsigned> values(n, 7);
  CUDA(cudaMemcpy(managed, values.data(), nbytes, cudaMemcpyHostToDevice));
  CUDA(cudaMemcpy(device, managed, nbytes, cudaMemcpyDeviceToDevice));
  CUDA(cudaMemset(managed, 0, nbytes));
  CUDA(cudaMemcpy(managed, device, nbytes, cudaMemcpyDefault));
  CUDA(cudaDeviceSynchronize());
  EXPECT(managed[0] == 7 && managed[n - 1] == 7, "managed: copies");
  int ends[2]; // system calls access managed memory
  EXPECT(pipe(ends) == 0 && write(ends[1], managed, 4) == 4 && read(ends[0], managed + n - 1, 4) == 4, "managed: pipe");
  CUDA(cudaFree(device));
  CUDA(cudaFree(managed));
  EXPECT_ERROR(cudaFree(managed), cudaErrorInvalidValue);
}

static void advice(int n) {
  size_t nbytes = n * sizeof(float);
  float *p, *pinned;
  CUDA(cudaMallocManaged(&p, nbytes, cudaMemAttachHost));
  CUDA(cudaMallocHost(&pinned, 64));
  cudaPointerAttributes a;
  CUDA(cudaPointerGetAttributes(&a, p));
  EXPECT(a.type == cudaMemoryTypeManaged && a.devicePointer == p && a.hostPointer == p, "managed: attributes");
  cudaMemLocation device = {cudaMemLocationTypeDevice, {0}}, host = {cudaMemLocationTypeHost, {0}},
                  wrong = {cudaMemLocationTypeDevice, {7}};
  CUDA(cudaMemAdvise(p, nbytes, cudaMemAdviseSetReadMostly, device));
  CUDA(cudaMemAdvise(p, nbytes, cudaMemAdviseSetPreferredLocation, host));
  CUDA(cudaMemAdvise(p, nbytes, cudaMemAdviseSetAccessedBy, device));
  CUDA(cudaMemPrefetchAsync(p, nbytes, device, 0));
  int value = 9, devices[3];
  CUDA(cudaMemRangeGetAttribute(&value, 4, cudaMemRangeAttributeReadMostly, p, nbytes));
  EXPECT(value == 1, "managed: read mostly is %d", value);
  CUDA(cudaMemRangeGetAttribute(&value, 4, cudaMemRangeAttributePreferredLocation, p, nbytes));
  EXPECT(value == cudaCpuDeviceId, "managed: preferred location is %d", value);
  CUDA(cudaMemRangeGetAttribute(&value, 4, cudaMemRangeAttributeLastPrefetchLocation, p, nbytes));
  EXPECT(value == 0, "managed: last prefetch is %d", value);
  CUDA(cudaMemRangeGetAttribute(devices, sizeof devices, cudaMemRangeAttributeAccessedBy, p, nbytes));
  EXPECT(devices[0] == 0 && devices[1] == cudaInvalidDeviceId, "managed: accessed by %d", devices[0]);
  CUDA(cudaMemAdvise(p, nbytes, cudaMemAdviseUnsetReadMostly, device));
  CUDA(cudaMemRangeGetAttribute(&value, 4, cudaMemRangeAttributeReadMostly, p, nbytes));
  EXPECT(value == 0, "managed: read mostly is %d still", value);
  EXPECT_ERROR(cudaMemAdvise(p, nbytes + 4096, cudaMemAdviseSetReadMostly, device), cudaErrorInvalidValue);
  EXPECT_ERROR(cudaMemAdvise(pinned, 64, cudaMemAdviseSetReadMostly, device), cudaErrorInvalidValue);
  EXPECT_ERROR(cudaMemPrefetchAsync(p, nbytes, wrong, 0), cudaErrorInvalidDevice);
  cudaGetLastError();
  CUDA(cudaStreamAttachMemAsync(0, p, 0, cudaMemAttachGlobal));
  CUDA(cudaFree(p));
}

int main(int argc, char **argv) {
  vgt_args args = vgt_parse(argc, argv, 10007);
  int managed = 0, concurrent = 0;
  CUDA(cudaDeviceGetAttribute(&managed, cudaDevAttrManagedMemory, 0));
  CUDA(cudaDeviceGetAttribute(&concurrent, cudaDevAttrConcurrentManagedAccess, 0));
  EXPECT(managed == 1, "managed: attributes of the device are %d, %d", managed, concurrent);
  tutorial(args.size);
  variables(args.size);
  copies(args.size);
  advice(args.size);
  printf("ok managed, host and device at once: %d\n", concurrent); // 0 on a channel without shared memory
  return 0;
}
