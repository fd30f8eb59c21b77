// __constant__ and __device__ variables: initialised in the program, written and read by the host, by symbol and by
// address, and used by kernels.
#include <cstring>

#include "vgt_check.h"

constexpr int TERMS = 5;

__constant__ float coefficients[TERMS] = {1, 2, 3, 4, 5};
__device__ int scale = 7;
__device__ unsigned calls;
__device__ double table[33];
__device__ const char word[] = "constant data";
__device__ int *indirect = &scale; // a pointer to be relocated when the module is loaded

__global__ void polynomial(const float *x, float *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  float value = 0;
  for (int term = TERMS - 1; term >= 0; term--)
    value = value * x[i] + coefficients[term];
  y[i] = value * (float)*indirect;
  if (i < 33)
    table[i] = 0.5 * i + word[i % 8];
  atomicInc(&calls, 0xffffffffu);
}

static void check(const std::vector<float> &x, float *dx, float *dy, const float *terms, int factor) {
  int n = (int)x.size();
  polynomial<<<(n + 63) / 64, 64>>>(dx, dy, n);
  CUDA(cudaGetLastError());
  std::vector<float> y = vgt_download(dy, n);
  for (int i = 0; i < n; i++) {
    float value = 0;
    for (int term = TERMS - 1; term >= 0; term--)
      value = value * x[i] + terms[term];
    EXPECT(y[i] == value * (float)factor, "symbols: element %d is %g instead of %g", i, y[i], value * (float)factor);
  }
}

int main(int argc, char **argv) {
  vgt_args args = vgt_parse(argc, argv, 4001);
  std::mt19937 random(args.seed);
  int n = args.size;
  std::vector<float> x = vgt_floats(random, n, -3, 3);
  float *dx = vgt_upload(x), *dy = vgt_upload(x);

  float terms[TERMS] = {1, 2, 3, 4, 5}, read[TERMS];
  check(x, dx, dy, terms, 7);
  for (float &term : terms)
    term = (float)(random() % 9);
  int factor = 3;
  CUDA(cudaMemcpyToSymbol(coefficients, terms, sizeof terms));
  CUDA(cudaMemcpyToSymbol(scale, &factor, sizeof factor));
  check(x, dx, dy, terms, factor);
  CUDA(cudaMemcpyFromSymbol(read, coefficients, sizeof read));
  EXPECT(memcmp(read, terms, sizeof read) == 0, "symbols: the constants read back differ");
  float one = -2;
  CUDA(cudaMemcpyToSymbol(coefficients, &one, sizeof one, 2 * sizeof one));
  terms[2] = one;
  check(x, dx, dy, terms, factor);

  unsigned counted = 0;
  CUDA(cudaMemcpyFromSymbol(&counted, calls, sizeof counted));
  EXPECT(counted == 3u * n, "symbols: %u calls instead of %u", counted, 3u * n);
  double values[33];
  CUDA(cudaMemcpyFromSymbol(values, table, sizeof values));
  for (int i = 0; i < 33 && i < n; i++)
    EXPECT(values[i] == 0.5 * i + "constant data"[i % 8], "symbols: table[%d] is %g", i, values[i]);
  double *address = nullptr;
  size_t nbytes = 0;
  CUDA(cudaGetSymbolAddress((void **)&address, table));
  CUDA(cudaGetSymbolSize(&nbytes, table));
  EXPECT(nbytes == sizeof values, "symbols: size %zu instead of %zu", nbytes, sizeof values);
  CUDA(cudaMemset(address, 0, nbytes));
  CUDA(cudaMemcpyFromSymbol(values, table, sizeof values));
  EXPECT(values[1] == 0, "symbols: the address is not the variable's");
  CUDA(cudaFree(dx));
  CUDA(cudaFree(dy));
  printf("ok symbols n=%d\n", n);
  return 0;
}
