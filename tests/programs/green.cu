// Green contexts: a device's multiprocessors divided in two, streams and contexts of each half.
#include <cuda.h>
#include <type_traits>

#include "vgt_check.h"

template <typename F> static F *entry(const char *name, F *) {
  void *function;
  cudaDriverEntryPointQueryResult found;
  CUDA(cudaGetDriverEntryPointByVersion(name, &function, 12050, cudaEnableDefault, &found));
  EXPECT(found == cudaDriverEntryPointSuccess, "green: no %s", name);
  return (F *)function;
}
#define OK(name, ...)                                                                                                  \
  do {                                                                                                                 \
    CUresult result_ = entry(#name, (std::remove_pointer_t<decltype(&name)> *)nullptr)(__VA_ARGS__);                   \
    EXPECT(result_ == CUDA_SUCCESS, "green: %s: %d", #name, (int)result_);                                             \
  } while (0)

__global__ void where(unsigned *seen) {
  unsigned sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  if (threadIdx.x == 0)
    atomicOr(&seen[sm / 32], 1u << sm % 32);
  for (int i = 0; i < 2000; i++) // long enough that every multiprocessor gets a block
    __nanosleep(20);
}

static int count(const unsigned *device) {
  std::vector<unsigned> words = vgt_download(device, 8);
  int bits = 0;
  for (unsigned word : words)
    bits += __builtin_popcount(word);
  return bits;
}

int main(int argc, char **argv) {
  vgt_parse(argc, argv, 1);
  unsigned *seen;
  CUDA(cudaMalloc(&seen, 32));
  CUdevResource all = {}, halves[2] = {}, left = {}, told = {};
  unsigned groups = 0;
  OK(cuDeviceGetDevResource, 0, &all, CU_DEV_RESOURCE_TYPE_SM);
  OK(cuDevSmResourceSplitByCount, nullptr, &groups, &all, nullptr, 0, all.sm.smCount / 2);
  EXPECT(groups >= 1, "green: %u groups of %u multiprocessors", groups, all.sm.smCount / 2);
  groups = 1;
  OK(cuDevSmResourceSplitByCount, halves, &groups, &all, &left, 0, all.sm.smCount / 2);
  EXPECT(groups == 1 && halves[0].sm.smCount >= all.sm.smCount / 2 && halves[0].sm.smCount < all.sm.smCount &&
             halves[0].sm.smCount + left.sm.smCount == all.sm.smCount,
         "green: %u of %u, %u left", halves[0].sm.smCount, all.sm.smCount, left.sm.smCount);
  CUdevResourceDesc desc;
  CUgreenCtx green;
  CUstream stream;
  CUcontext context, again;
  CUevent event;
  OK(cuDevResourceGenerateDesc, &desc, halves, 1);
  OK(cuGreenCtxCreate, &green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM);
  OK(cuGreenCtxGetDevResource, green, &told, CU_DEV_RESOURCE_TYPE_SM);
  EXPECT(told.sm.smCount == halves[0].sm.smCount, "green: a context of %u multiprocessors", told.sm.smCount);
  OK(cuGreenCtxStreamCreate, &stream, green, CU_STREAM_NON_BLOCKING, 0);
  CUDA(cudaMemset(seen, 0, 32));
  CUDA(cudaDeviceSynchronize());
  where<<<4 * all.sm.smCount, 32, 0, stream>>>(seen);
  CUDA(cudaStreamSynchronize(stream));
  int used = count(seen);
  EXPECT(used > 0 && used <= (int)halves[0].sm.smCount, "green: %d multiprocessors of %u", used, halves[0].sm.smCount);
  CUDA(cudaEventCreateWithFlags((cudaEvent_t *)&event, cudaEventDisableTiming));
  OK(cuGreenCtxRecordEvent, green, event);
  CUDA(cudaEventSynchronize(event));
  OK(cuCtxFromGreenCtx, &context, green);
  OK(cuCtxFromGreenCtx, &again, green);
  EXPECT(context == again, "green: two contexts for one");
  CUcontext before;
  OK(cuCtxGetCurrent, &before);
  OK(cuCtxSetCurrent, context);
  told = {};
  OK(cuCtxGetDevResource, context, &told, CU_DEV_RESOURCE_TYPE_SM);
  EXPECT(told.sm.smCount == halves[0].sm.smCount, "green: current, of %u multiprocessors", told.sm.smCount);
  OK(cuCtxSetCurrent, before);
  CUDA(cudaStreamDestroy(stream));
  OK(cuGreenCtxDestroy, green);
  where<<<4 * all.sm.smCount, 32>>>(seen);
  CUDA(cudaDeviceSynchronize());
  printf("ok green: %d of %u multiprocessors\n", used, all.sm.smCount);
  return 0;
}
