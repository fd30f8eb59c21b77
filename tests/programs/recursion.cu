// Recursive device functions: two recursive calls in one function, mutual recursion, a local array at each depth.
// As natively, the program must only provide a large enough stack (cudaLimitStackSize).
#include "vgt_check.h"

__device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

__device__ __noinline__ int odd(int n);
__device__ __noinline__ int even(int n) { return n == 0 ? 1 : odd(n - 1) + 2 * n; }
__device__ __noinline__ int odd(int n) { return n == 0 ? 3 : even(n - 1) - n; }

// Merge sort; `scratch` is as long as `data`.
__device__ __noinline__ void sort(int *data, int *scratch, int n) {
  if (n < 2)
    return;
  int half = n / 2;
  sort(data, scratch, half);
  sort(data + half, scratch, n - half);
  int a = 0, b = half;
  for (int i = 0; i < n; i++)
    scratch[i] = b == n || (a < half && data[a] <= data[b]) ? data[a++] : data[b++];
  for (int i = 0; i < n; i++)
    data[i] = scratch[i];
}

// Recursion over the digits of `n`, with an array in local memory at each depth.
__device__ __noinline__ int digits(int n, int base) {
  int kept[4] = {n % base, n / base, n, base};
  int rest = n == 0 ? 0 : digits(n / base, base);
  return kept[(n + base) % 4] % 7 + 3 * rest;
}

enum { THREADS = 96, LENGTH = 20 };

__global__ void all(int *out, int *numbers, int *scratch, int seed) {
  int i = threadIdx.x;
  int *mine = numbers + i * LENGTH;
  for (int k = 0; k < LENGTH; k++)
    mine[k] = (seed + i * 7919 + k * 104729) % 1000;
  sort(mine, scratch + i * LENGTH, LENGTH - i % 3);
  out[i] = fib(i % 14) + 1000 * even(i % 17) + 100000 * digits(i + seed % 100, 2 + i % 3);
}

static int host_fib(int n) { return n < 2 ? n : host_fib(n - 1) + host_fib(n - 2); }
static int host_odd(int n);
static int host_even(int n) { return n == 0 ? 1 : host_odd(n - 1) + 2 * n; }
static int host_odd(int n) { return n == 0 ? 3 : host_even(n - 1) - n; }
static int host_digits(int n, int base) {
  int kept[4] = {n % base, n / base, n, base};
  int rest = n == 0 ? 0 : host_digits(n / base, base);
  return kept[(n + base) % 4] % 7 + 3 * rest;
}

int main(int argc, char **argv) {
  vgt_args args = vgt_parse(argc, argv, 1);
  int seed = (int)(args.seed % 10000), *out, *numbers, *scratch;
  CUDA(cudaDeviceSetLimit(cudaLimitStackSize, 16 << 10));
  CUDA(cudaMalloc(&out, THREADS * sizeof(int)));
  CUDA(cudaMalloc(&numbers, THREADS * LENGTH * sizeof(int)));
  CUDA(cudaMalloc(&scratch, THREADS * LENGTH * sizeof(int)));
  all<<<1, THREADS>>>(out, numbers, scratch, seed);
  static int got[THREADS], sorted[THREADS * LENGTH];
  CUDA(cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost));
  CUDA(cudaMemcpy(sorted, numbers, sizeof sorted, cudaMemcpyDeviceToHost));
  for (int i = 0; i < THREADS; i++) {
    int expected = host_fib(i % 14) + 1000 * host_even(i % 17) + 100000 * host_digits(i + seed % 100, 2 + i % 3);
    EXPECT(got[i] == expected, "recursion: thread %d: %d, not %d", i, got[i], expected);
    long sum = 0, wanted = 0;
    for (int k = 0; k < LENGTH; k++) {
      sum += sorted[i * LENGTH + k];
      wanted += (seed + i * 7919 + k * 104729) % 1000;
      EXPECT(k == 0 || k >= LENGTH - i % 3 || sorted[i * LENGTH + k - 1] <= sorted[i * LENGTH + k],
             "recursion: thread %d is not sorted at %d", i, k);
    }
    EXPECT(sum == wanted, "recursion: thread %d lost a number", i);
  }
  printf("ok recursion\n");
  return 0;
}
