// Thrust's radix sort of a million keys, and std::sort. Prints for each: name, best time, time of the first run.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <thrust/device_vector.h>
#include <thrust/sort.h>

#include "sizes.h"

template <typename Sort, typename Reset> static void measure(const char *name, Reset reset, Sort sort) {
  double first_s = 0, best_s = 1e9;
  for (int round = 0; round <= ROUNDS; round++) {
    reset();
    cudaDeviceSynchronize();
    auto start = std::chrono::steady_clock::now();
    sort();
    cudaDeviceSynchronize();
    double elapsed_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (round == 0)
      first_s = elapsed_s;
    else
      best_s = std::min(best_s, elapsed_s);
  }
  printf("%s %.9f %.9f\n", name, best_s, first_s);
}

int main() {
  std::vector<uint32_t> keys(SORT_KEYS), sorted;
  for (uint32_t i = 0; i < SORT_KEYS; i++)
    keys[i] = (i ^ i >> 7) * 2654435761u;
  thrust::device_vector<uint32_t> original(keys), device(SORT_KEYS);
  measure("sort", [&] { device = original; }, [&] { thrust::sort(device.begin(), device.end()); });
  measure("std::sort", [&] { sorted = keys; }, [&] { std::sort(sorted.begin(), sorted.end()); });
  thrust::copy(device.begin(), device.end(), keys.begin());
  if (keys != sorted) {
    fprintf(stderr, "wrong results\n");
    return 1;
  }
  return 0;
}
