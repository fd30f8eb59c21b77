// Sum and maximum by warp shuffles, then one shared-memory step per block; also ballots, votes and a segmented scan by
// shfl_up.
#include <algorithm>
#include <climits>

#include "vgt_check.h"

constexpr unsigned ALL = 0xffffffffu;
constexpr int BLOCK = 224; // seven warps: the last step has more lanes than there are warps' results

struct totals {
  unsigned long long sum;
  int maximum;
  unsigned odd;
};

__global__ void reduce(const int *values, int n, totals *result) {
  __shared__ long long sums[BLOCK / 32];
  __shared__ int maxima[BLOCK / 32];
  long long sum = 0;
  int maximum = INT_MIN;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    sum += values[i];
    maximum = max(maximum, values[i]);
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    sum += __shfl_down_sync(ALL, sum, offset);
    maximum = max(maximum, __shfl_xor_sync(ALL, maximum, offset));
  }
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (lane == 0) {
    sums[warp] = sum;
    maxima[warp] = maximum;
  }
  __syncthreads();
  if (warp == 0) {
    sum = lane < BLOCK / 32 ? sums[lane] : 0;
    maximum = lane < BLOCK / 32 ? maxima[lane] : INT_MIN;
    for (int offset = 4; offset > 0; offset /= 2) {
      sum += __shfl_down_sync(ALL, sum, offset);
      maximum = max(maximum, __shfl_down_sync(ALL, maximum, offset));
    }
    if (lane == 0) {
      atomicAdd(&result->sum, (unsigned long long)sum);
      atomicMax(&result->maximum, maximum);
    }
  }
}

__global__ void count_odd(const int *values, int n, totals *result) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned odd = __ballot_sync(ALL, i < n && (values[i] & 1));
  if (threadIdx.x % 32 == 0 && __popc(odd) > 0)
    atomicAdd(&result->odd, __popc(odd));
}

// Inclusive prefix sums of each run of 32 values.
__global__ void scan(const int *values, int n, int *prefixes) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int lane = threadIdx.x % 32;
  int value = i < n ? values[i] : 0;
  for (int distance = 1; distance < 32; distance *= 2) {
    int below = __shfl_up_sync(ALL, value, distance);
    if (lane >= distance)
      value += below;
  }
  if (i < n)
    prefixes[i] = value;
}

int main(int argc, char **argv) {
  vgt_args args = vgt_parse(argc, argv, 54321);
  std::mt19937 random(args.seed);
  int n = args.size;
  std::vector<int> values(n);
  totals expected = {0, INT_MIN, 0};
  for (int &value : values) {
    value = (int)(random() % 2000001) - 1000000;
    expected.sum += (unsigned long long)(long long)value;
    expected.maximum = std::max(expected.maximum, value);
    expected.odd += value & 1;
  }
  int *device = vgt_upload(values), *prefixes = nullptr;
  totals *result = nullptr, initial = {0, INT_MIN, 0}, got;
  CUDA(cudaMalloc(&prefixes, n * sizeof(int)));
  CUDA(cudaMalloc(&result, sizeof *result));
  CUDA(cudaMemcpy(result, &initial, sizeof initial, cudaMemcpyHostToDevice));
  reduce<<<13, BLOCK>>>(device, n, result);
  count_odd<<<(n + 127) / 128, 128>>>(device, n, result);
  scan<<<(n + 95) / 96, 96>>>(device, n, prefixes);
  CUDA(cudaGetLastError());
  CUDA(cudaMemcpy(&got, result, sizeof got, cudaMemcpyDeviceToHost));
  EXPECT(got.sum == expected.sum, "reduction: sum %lld instead of %lld", (long long)got.sum, (long long)expected.sum);
  EXPECT(got.maximum == expected.maximum, "reduction: maximum %d instead of %d", got.maximum, expected.maximum);
  EXPECT(got.odd == expected.odd, "reduction: %u odd values instead of %u", got.odd, expected.odd);
  std::vector<int> scanned = vgt_download(prefixes, n);
  for (int i = 0, sum = 0; i < n; i++) {
    sum = i % 32 ? sum + values[i] : values[i];
    EXPECT(scanned[i] == sum, "reduction: prefix %d is %d instead of %d", i, scanned[i], sum);
  }
  CUDA(cudaFree(device));
  CUDA(cudaFree(prefixes));
  CUDA(cudaFree(result));
  printf("ok reduction n=%d\n", n);
  return 0;
}
