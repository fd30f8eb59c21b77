// A cooperative launch: all blocks meet at grid-wide barriers; each round reads what the previous one wrote.
#include <cooperative_groups.h>
#include <utility>

#include "vgt_check.h"

namespace cg = cooperative_groups;

__global__ void diffuse(unsigned *a, unsigned *b, int n, int rounds) {
  cg::grid_group grid = cg::this_grid();
  for (int round = 0; round < rounds; round++) {
    for (int i = (int)grid.thread_rank(); i < n; i += (int)grid.size())
      b[i] = a[i] + 3 * a[(i + 1) % n] + a[(i + n - 7 % n) % n];
    grid.sync();
    unsigned *swap = a;
    a = b;
    b = swap;
  }
}

int main(int argc, char **argv) {
  vgt_args args = vgt_parse(argc, argv, 1499);
  std::mt19937 random(args.seed);
  int n = args.size, rounds = 9, supported = 0, per_sm = 0, sms = 0;
  CUDA(cudaDeviceGetAttribute(&supported, cudaDevAttrCooperativeLaunch, 0));
  CUDA(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
  EXPECT(supported == 1, "cooperative: not supported by the device");
  CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, diffuse, 64, 0));
  EXPECT(per_sm > 0 && sms > 0, "cooperative: %d blocks on each of %d SMs", per_sm, sms);
  std::vector<unsigned> values = vgt_words(random, n), next(n);
  unsigned *a = vgt_upload(values), *b = vgt_upload(values);
  void *parameters[] = {&a, &b, &n, &rounds};
  CUDA(cudaLaunchCooperativeKernel(diffuse, dim3(8), dim3(64), parameters, 0, 0));
  CUDA(cudaDeviceSynchronize());
  for (int round = 0; round < rounds; round++) {
    for (int i = 0; i < n; i++)
      next[i] = values[i] + 3 * values[(i + 1) % n] + values[(i + n - 7 % n) % n];
    std::swap(values, next);
  }
  std::vector<unsigned> got = vgt_download(rounds % 2 ? b : a, n);
  for (int i = 0; i < n; i++)
    EXPECT(got[i] == values[i], "cooperative: element %d is %u instead of %u", i, got[i], values[i]);
  // More blocks than can run at once cannot meet at a barrier.
  EXPECT_ERROR(cudaLaunchCooperativeKernel(diffuse, dim3(sms * per_sm + 1), dim3(64), parameters, 0, 0),
               cudaErrorCooperativeLaunchTooLarge);
  cudaGetLastError();
  CUDA(cudaFree(a));
  CUDA(cudaFree(b));
  printf("ok cooperative n=%d\n", n);
  return 0;
}
