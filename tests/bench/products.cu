// Matrix products of 1024^3 for the kernel benchmark: f16 by wmma, and f32 by cuBLAS if its library is found. Prints,
// for each, the best time of several and that of the first call. kernels.py has NumPy's beside them.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <vector>

#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <mma.h>

static const int N = 1024, ROUNDS = 5;

// Each warp has 16 by 64 of the product.
__global__ void wmma(const half *a, const half *b, float *c) {
  using namespace nvcuda::wmma;
  int warp = threadIdx.x / 32, row = (blockIdx.y * 4 + warp) * 16, column = blockIdx.x * 64;
  fragment<accumulator, 16, 16, 16, float> sums[4];
  for (auto &sum : sums)
    fill_fragment(sum, 0.0f);
  for (int k = 0; k < N; k += 16) {
    fragment<matrix_a, 16, 16, 16, half, row_major> left;
    load_matrix_sync(left, a + row * N + k, N);
    for (int i = 0; i < 4; i++) {
      fragment<matrix_b, 16, 16, 16, half, row_major> right;
      load_matrix_sync(right, b + k * N + column + i * 16, N);
      mma_sync(sums[i], left, right, sums[i]);
    }
  }
  for (int i = 0; i < 4; i++)
    store_matrix_sync(c + row * N + column + i * 16, sums[i], N, mem_row_major);
}

template <typename Work> static void measure(const char *name, Work work) {
  double first_s = 0, best_s = 1e9;
  for (int round = 0; round <= ROUNDS; round++) {
    auto start = std::chrono::steady_clock::now();
    work();
    if (cudaDeviceSynchronize() != cudaSuccess) {
      fprintf(stderr, "%s: %s\n", name, cudaGetErrorName(cudaGetLastError()));
      exit(1);
    }
    double elapsed_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    (round ? best_s : first_s) = round ? std::min(best_s, elapsed_s) : elapsed_s;
  }
  printf("%s %.9f %.9f\n", name, best_s, first_s);
}

static void check(const char *name, const float *c) {
  float got = 0;
  cudaMemcpy(&got, c + (N - 1) * N + N - 1, sizeof got, cudaMemcpyDeviceToHost);
  if (got != N) {
    fprintf(stderr, "%s: %g instead of %d\n", name, got, N);
    exit(1);
  }
}

int main() {
  std::vector<half> halves(N * N, __float2half(1.0f));
  std::vector<float> ones(N * N, 1.0f);
  half *a, *b;
  float *x, *y, *c;
  cudaMalloc(&a, N * N * sizeof(half));
  cudaMalloc(&b, N * N * sizeof(half));
  cudaMalloc(&x, N * N * sizeof(float));
  cudaMalloc(&y, N * N * sizeof(float));
  cudaMalloc(&c, N * N * sizeof(float));
  cudaMemcpy(a, halves.data(), N * N * sizeof(half), cudaMemcpyHostToDevice);
  cudaMemcpy(b, halves.data(), N * N * sizeof(half), cudaMemcpyHostToDevice);
  cudaMemcpy(x, ones.data(), N * N * sizeof(float), cudaMemcpyHostToDevice);
  cudaMemcpy(y, ones.data(), N * N * sizeof(float), cudaMemcpyHostToDevice);
  measure("wmma", [&] { wmma<<<dim3(N / 64, N / 64), 128>>>(a, b, c); });
  check("wmma", c);

  void *library = nullptr;
  for (const char *name : {getenv("BENCH_CUBLAS"), (char *)"libcublas.so.13", (char *)"libcublas.so.12"})
    library = library || !name ? library : dlopen(name, RTLD_NOW);
  auto create = (int (*)(void **))(library ? dlsym(library, "cublasCreate_v2") : nullptr);
  auto sgemm = (int (*)(void *, int, int, int, int, int, const float *, const float *, int, const float *, int,
                        const float *, float *, int))(library ? dlsym(library, "cublasSgemm_v2") : nullptr);
  void *handle = nullptr;
  if (!create || !sgemm || create(&handle)) {
    fprintf(stderr, "no cuBLAS: sgemm is left out\n");
    return 0;
  }
  const float one = 1, zero = 0;
  cudaMemset(c, 0, N * N * sizeof(float));
  measure("sgemm", [&] {
    if (sgemm(handle, 0, 0, N, N, N, &one, x, N, y, N, &zero, c, N))
      exit(1);
  });
  check("sgemm", c);
  return 0;
}
