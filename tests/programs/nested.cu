// Kernels that launch kernels (dynamic parallelism, linked with libcudadevrt): trees of kernels, streams and events
// that device code creates, the tail stream, structs as parameters, errors returned to device code, copies by kernels.
#include "vgt_check.h"

struct range {
  int first, last;
  double weight;
};

__global__ void sum(range r, unsigned long long *total) {
  extern __shared__ unsigned long long part[];
  if (r.last - r.first > 100) {
    if (threadIdx.x == 0) {
      int middle = r.first + (r.last - r.first) / 2;
      sum<<<1, 64, 64 * sizeof *part>>>(range{r.first, middle, r.weight}, total);
      sum<<<1, 64, 64 * sizeof *part>>>(range{middle, r.last, r.weight}, total);
    }
    return;
  }
  part[threadIdx.x] = 0;
  for (int i = r.first + threadIdx.x; i < r.last; i += blockDim.x)
    part[threadIdx.x] += (unsigned long long)(i * r.weight);
  __syncthreads();
  for (int i = 0; threadIdx.x == 0 && i < blockDim.x; i++)
    atomicAdd(total, part[i]);
}

__global__ void append(int value, int *list) { list[++list[0]] = value; }
__global__ void double_all(int *list) {
  if (threadIdx.x < list[0])
    list[1 + threadIdx.x] *= 2;
}

__global__ void in_streams(int *list, int *copy, unsigned *errors) {
  cudaStream_t stream;
  cudaEvent_t event;
  errors[0] = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  errors[1] = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  double_all<<<1, 32, 0, cudaStreamTailLaunch>>>(list);
  append<<<1, 1, 0, stream>>>(7, list);
  errors[2] = cudaEventRecord(event, stream);
  errors[3] = cudaStreamWaitEvent(stream, event, 0);
  append<<<1, 1, 0, stream>>>(8, list);
  cudaMemcpyAsync(copy, list, 3 * sizeof *list, cudaMemcpyDeviceToDevice, stream);
  errors[4] = cudaGetLastError();
  errors[5] = cudaStreamDestroy(stream);
  int device, warp = 0;
  errors[6] = cudaGetDevice(&device);
  cudaDeviceGetAttribute(&warp, cudaDevAttrWarpSize, device);
  errors[7] = warp;
}

int main(int argc, char **argv) {
  vgt_args args = vgt_parse(argc, argv, 3000);
  int n = args.size;
  unsigned long long expected = 0;
  for (int i = 0; i < n; i++)
    expected += (unsigned long long)(i * 2.5);
  std::vector<unsigned long long> zero(1);
  unsigned long long *total = vgt_upload(zero);
  sum<<<1, 64, 64 * sizeof *total>>>(range{0, n, 2.5}, total);
  EXPECT(vgt_download(total, 1)[0] == expected, "nested: the sum of a tree of kernels");
  int *list = vgt_upload(std::vector<int>(8)), *copy = vgt_upload(std::vector<int>(8));
  unsigned *errors = vgt_upload(std::vector<unsigned>(8, 99));
  in_streams<<<1, 1>>>(list, copy, errors);
  CUDA(cudaDeviceSynchronize());
  std::vector<int> got = vgt_download(list, 3), between = vgt_download(copy, 3);
  EXPECT(got[0] == 2 && got[1] == 14 && got[2] == 16, "nested: %d, %d of %d after the tail", got[1], got[2], got[0]);
  EXPECT(between[1] == 7 && between[2] == 8, "nested: %d, %d before it", between[1], between[2]);
  std::vector<unsigned> found = vgt_download(errors, 8);
  for (int i = 0; i < 7; i++)
    EXPECT(found[i] == cudaSuccess, "nested: the call %d answered %u", i, found[i]);
  EXPECT(found[7] == 32, "nested: a warp of %u", found[7]);
  printf("ok nested n=%d\n", n);
  return 0;
}
