// Words of memory that streams wait for and write, attributes of streams, batched copies (NR19), and the launch
// functions of CUDA 1.
#include <cuda.h>
#include <string>
#include <thread>

#include "vgt_check.h"

// Names of functions in cuda.h may end in a version; the names to look up do not.
static void *entry(std::string name, unsigned version) {
  void *function;
  cudaDriverEntryPointQueryResult found;
  name = name.substr(0, name.rfind("_v2"));
  CUDA(cudaGetDriverEntryPointByVersion(name.c_str(), &function, version, cudaEnableDefault, &found));
  EXPECT(found == cudaDriverEntryPointSuccess, "words: no %s", name.c_str());
  return function;
}

#define DRIVER(name, ...) ((decltype(&name))entry(#name, 12080))(__VA_ARGS__)
#define OK(name, ...) EXPECT(DRIVER(name, __VA_ARGS__) == CUDA_SUCCESS, "words: %s", #name)

extern "C" __global__ void store(unsigned *to, unsigned value, float scale) { *to = unsigned(value * scale); }

static void waits(CUdeviceptr device, volatile unsigned *host, CUstream a, CUstream b) {
  unsigned found = 0;
  // The second stream writes the word that the first waits for; the copy after the wait sees all earlier writes.
  OK(cuStreamWaitValue32, a, device, 7, CU_STREAM_WAIT_VALUE_EQ);
  CUDA(cudaMemcpyAsync((void *)(host + 8), (void *)(device + 8), 4, cudaMemcpyDeviceToHost, a));
  OK(cuStreamWriteValue32, b, device + 8, 99, 0);
  OK(cuStreamWriteValue32, b, device, 7, 0);
  CUDA(cudaStreamSynchronize(a));
  EXPECT(host[8] == 99, "words: behind a wait: %u", host[8]);
  // The host writes the word that the stream waits for, in memory that the device accesses.
  OK(cuStreamWaitValue32, a, (CUdeviceptr)host, 100, CU_STREAM_WAIT_VALUE_GEQ);
  OK(cuStreamWriteValue64, a, (CUdeviceptr)(host + 2), 0x100000002ull, 0);
  EXPECT(cudaStreamQuery(a) == cudaErrorNotReady, "words: a stream did not wait");
  cudaGetLastError();
  std::thread([host] { *host = 101; }).join();
  CUDA(cudaStreamSynchronize(a));
  EXPECT(host[2] == 2 && host[3] == 1, "words: 64 bits: %u %u", host[2], host[3]);
  OK(cuStreamWaitValue64, a, (CUdeviceptr)(host + 2), 0x100000000ull, CU_STREAM_WAIT_VALUE_AND);
  OK(cuStreamWaitValue32, a, (CUdeviceptr)host, ~101u ^ 2, CU_STREAM_WAIT_VALUE_NOR); // one bit is set in neither
  CUDA(cudaStreamSynchronize(a));
  CUstreamBatchMemOpParams batch[2] = {};
  batch[0].writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, device, {5}, 0, 0};
  batch[1].waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_32, device, {5}, CU_STREAM_WAIT_VALUE_EQ, 0};
  OK(cuStreamBatchMemOp, b, 2, batch, 0);
  CUDA(cudaStreamSynchronize(b));
  CUDA(cudaMemcpy(&found, (void *)device, 4, cudaMemcpyDeviceToHost));
  EXPECT(found == 5, "words: a batch wrote %u", found);
  EXPECT(DRIVER(cuStreamWriteValue32, a, device + 2, 1, 0) == CUDA_ERROR_INVALID_VALUE, "words: not aligned");
  EXPECT(DRIVER(cuStreamWriteValue32, a, 4096, 1, 0) == CUDA_ERROR_INVALID_VALUE, "words: no memory of the device's");
  EXPECT(DRIVER(cuStreamBatchMemOp, b, 257, batch, 0) == CUDA_ERROR_INVALID_VALUE, "words: too many");
}

static void attributes(cudaStream_t a, cudaStream_t b) {
  cudaLaunchAttributeValue value = {};
  CUDA(cudaStreamGetAttribute(a, cudaLaunchAttributeSynchronizationPolicy, &value));
  EXPECT((int)value.syncPolicy == -1, "words: policy %d where none was set", (int)value.syncPolicy); // as on an H200
  value.syncPolicy = cudaSyncPolicyYield;
  CUDA(cudaStreamSetAttribute(a, cudaLaunchAttributeSynchronizationPolicy, &value));
  CUDA(cudaStreamCopyAttributes(b, a));
  value = {};
  CUDA(cudaStreamGetAttribute(b, cudaLaunchAttributeSynchronizationPolicy, &value));
  EXPECT(value.syncPolicy == cudaSyncPolicyYield, "words: copied policy %d", (int)value.syncPolicy);
  EXPECT_ERROR(cudaStreamGetAttribute(b, cudaLaunchAttributeCooperative, &value), cudaErrorInvalidValue);
  cudaGetLastError();
}

static void batches(CUstream stream) {
  enum { COUNT = 3, EACH = 1000 };
  CUdeviceptr to[COUNT], from[COUNT];
  size_t sizes[COUNT], index = 0, failed = 77;
  CUmemcpyAttributes attributes = {};
  std::vector<char> source(COUNT * EACH), sink(COUNT * EACH);
  char *memory;
  CUDA(cudaMalloc(&memory, COUNT * EACH));
  for (int i = 0; i < COUNT; i++) {
    memset(source.data() + i * EACH, 'a' + i, EACH);
    to[i] = (CUdeviceptr)memory + i * EACH;
    from[i] = (CUdeviceptr)source.data() + (COUNT - 1 - i) * EACH;
    sizes[i] = EACH - i;
  }
  CUDA(cudaMemset(memory, 0, COUNT * EACH));
  CUDA(cudaDeviceSynchronize()); // the stream does not wait for the legacy stream
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  auto copy = (CUresult (*)(CUdeviceptr *, CUdeviceptr *, size_t *, size_t, CUmemcpyAttributes *, size_t *, size_t,
                            size_t *, CUstream))entry("cuMemcpyBatchAsync", 12080);
  EXPECT(copy(to, from, sizes, COUNT, &attributes, &index, 1, &failed, stream) == CUDA_SUCCESS, "words: batch");
  memset(source.data(), 0, source.size()); // the source has been read
  CUDA(cudaStreamSynchronize(stream));
  CUDA(cudaMemcpy(sink.data(), memory, sink.size(), cudaMemcpyDeviceToHost));
  for (int i = 0; i < COUNT * EACH; i++)
    EXPECT(sink[i] == (i % EACH < EACH - i / EACH ? 'c' - i / EACH : 0), "words: byte %d of a batch is %d", i, sink[i]);
  to[1] = 0;
  EXPECT(copy(to, from, sizes, COUNT, &attributes, &index, 1, &failed, stream) != CUDA_SUCCESS && failed == 1,
         "words: the copy that fails is %zu", failed);
  EXPECT(copy(to, from, sizes, COUNT, &attributes, &index, 1, &failed, 0) == CUDA_ERROR_INVALID_VALUE,
         "words: the default stream takes a batch");
  CUDA(cudaFree(memory));
}

static void old_launches(CUdeviceptr device) {
  cudaFunction_t function;
  unsigned found;
  CUDA(cudaGetFuncBySymbol(&function, (const void *)store));
  OK(cuFuncSetBlockShape, function, 1, 1, 1);
  OK(cuFuncSetSharedSize, function, 64);
  OK(cuParamSetv, function, 0, &device, sizeof device);
  OK(cuParamSeti, function, 8, 21);
  OK(cuParamSetf, function, 12, 2.0f);
  OK(cuParamSetSize, function, 16);
  OK(cuLaunchGrid, function, 1, 1);
  CUDA(cudaMemcpy(&found, (void *)device, 4, cudaMemcpyDeviceToHost));
  EXPECT(found == 42, "words: an old launch stored %u", found);
  EXPECT(DRIVER(cuLaunchGrid, function, 0, 1) == CUDA_ERROR_INVALID_VALUE, "words: no grid");
}

int main(int argc, char **argv) {
  vgt_parse(argc, argv, 1);
  cudaStream_t a, b;
  void *device;
  unsigned *host;
  CUDA(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
  CUDA(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
  CUDA(cudaMalloc(&device, 4096));
  CUDA(cudaMemset(device, 0, 4096));
  CUDA(cudaHostAlloc(&host, 4096, cudaHostAllocMapped));
  memset(host, 0, 4096);
  CUDA(cudaDeviceSynchronize());
  waits((CUdeviceptr)device, host, a, b);
  attributes(a, b);
  batches(a);
  old_launches((CUdeviceptr)device);
  printf("ok words\n");
  return 0;
}
