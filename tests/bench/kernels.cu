// The simulator's side of the kernel benchmark: `kernels` prints, for each kernel, the time of its first launch and the
// best of several. Arguments name the kernels to run; without any, all do. With BENCH_STEPS set, each launch but the
// first waits for a line of the standard input, and prints its time. loops.c runs the same work as plain loops.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <cuda_runtime.h>

#include "sizes.h"

#define CUDA(call)                                                                                                     \
  do {                                                                                                                 \
    cudaError_t error_ = (call);                                                                                       \
    if (error_ != cudaSuccess) {                                                                                       \
      fprintf(stderr, "%s: %s\n", #call, cudaGetErrorName(error_));                                                    \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

__global__ void saxpy(int n, float a, const float *x, float *y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    y[i] = a * x[i] + y[i];
}

__global__ void matmul(const float *a, const float *b, float *c, int n) {
  __shared__ float tile_a[16][16], tile_b[16][16];
  int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
  float sum = 0;
  for (int start = 0; start < n; start += 16) {
    tile_a[threadIdx.y][threadIdx.x] = a[row * n + start + threadIdx.x];
    tile_b[threadIdx.y][threadIdx.x] = b[(start + threadIdx.y) * n + column];
    __syncthreads();
    for (int i = 0; i < 16; i++)
      sum += tile_a[threadIdx.y][i] * tile_b[i][threadIdx.x];
    __syncthreads();
  }
  c[row * n + column] = sum;
}

__global__ void reduction(const float *values, int n, float *sum) {
  __shared__ float parts[8];
  float part = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    part += values[i];
  for (int offset = 16; offset > 0; offset /= 2)
    part += __shfl_down_sync(0xffffffffu, part, offset);
  if (threadIdx.x % 32 == 0)
    parts[threadIdx.x / 32] = part;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 1; i < 8; i++)
      part += parts[i];
    atomicAdd(sum, part);
  }
}

__global__ void histogram(const unsigned char *bytes, int n, unsigned *bins) {
  __shared__ unsigned local[256];
  local[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    atomicAdd(&local[bytes[i]], 1u);
  __syncthreads();
  atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}

// A sum like `reduction`, but with all steps in shared memory.
__global__ void reduction_tree(const float *values, int n, float *sum) {
  __shared__ float parts[256];
  float part = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    part += values[i];
  parts[threadIdx.x] = part;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (threadIdx.x < half)
      parts[threadIdx.x] += parts[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0)
    atomicAdd(sum, parts[0]);
}

template <typename T> __global__ void copy(const T *from, T *to, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    to[i] = from[i];
}

static int chosen_count;
static char **chosen;

template <typename Launch> static void measure(const char *name, Launch launch) {
  if (chosen_count && std::none_of(chosen, chosen + chosen_count, [&](char *other) { return !strcmp(name, other); }))
    return;
  double first_s = 0, best_s = 1e9;
  bool steps = getenv("BENCH_STEPS") != NULL;
  for (int round = 0; round <= ROUNDS; round++) {
    if (steps && round && getchar() == EOF)
      return;
    auto start = std::chrono::steady_clock::now();
    launch();
    CUDA(cudaGetLastError());
    CUDA(cudaDeviceSynchronize());
    double elapsed_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (round == 0)
      first_s = elapsed_s;
    else
      best_s = std::min(best_s, elapsed_s);
    if (steps) {
      printf("%.9f\n", elapsed_s);
      fflush(stdout);
    }
  }
  printf("%s %.9f %.9f\n", name, best_s, first_s);
  fflush(stdout);
}

int main(int argc, char **argv) {
  chosen_count = argc - 1;
  chosen = argv + 1;
  std::vector<float> ones(VECTOR, 1.0f);
  std::vector<unsigned char> text(VECTOR);
  for (int i = 0; i < VECTOR; i++)
    text[i] = (unsigned char)(i * 2654435761u >> 13);
  float *x, *y, *z, *a, *b, *c, *sum;
  unsigned char *bytes;
  unsigned *bins;
  CUDA(cudaMalloc(&x, VECTOR * sizeof(float)));
  CUDA(cudaMalloc(&y, VECTOR * sizeof(float)));
  CUDA(cudaMalloc(&z, VECTOR * sizeof(float)));
  CUDA(cudaMalloc(&bytes, VECTOR));
  CUDA(cudaMalloc(&bins, 256 * sizeof(unsigned)));
  CUDA(cudaMalloc(&sum, sizeof(float)));
  for (float **matrix : {&a, &b, &c}) {
    CUDA(cudaMalloc(matrix, MATRIX * MATRIX * sizeof(float)));
    CUDA(cudaMemcpy(*matrix, ones.data(), MATRIX * MATRIX * sizeof(float), cudaMemcpyHostToDevice));
  }
  CUDA(cudaMemcpy(x, ones.data(), VECTOR * sizeof(float), cudaMemcpyHostToDevice));
  CUDA(cudaMemcpy(y, ones.data(), VECTOR * sizeof(float), cudaMemcpyHostToDevice));
  CUDA(cudaMemcpy(bytes, text.data(), VECTOR, cudaMemcpyHostToDevice));
  CUDA(cudaMemset(bins, 0, 256 * sizeof(unsigned)));
  CUDA(cudaMemset(sum, 0, sizeof(float)));
  measure("saxpy", [&] { saxpy<<<VECTOR / 256, 256>>>(VECTOR, 2.0f, x, y); });
  measure("matmul", [&] { matmul<<<dim3(MATRIX / 16, MATRIX / 16), dim3(16, 16)>>>(a, b, c, MATRIX); });
  measure("reduction", [&] { reduction<<<264, 256>>>(x, VECTOR, sum); });
  measure("histogram", [&] { histogram<<<264, 256>>>(bytes, VECTOR, bins); });
  measure("reduction_tree", [&] { reduction_tree<<<264, 256>>>(x, VECTOR, sum); });
  const int nbytes = VECTOR * sizeof(float), count = VECTOR / 4;
  measure("copy_bytes", [&] { copy<<<nbytes / 256, 256>>>((unsigned char *)x, (unsigned char *)z, nbytes); });
  measure("copy_halves", [&] { copy<<<nbytes / 512, 256>>>((unsigned short *)x, (unsigned short *)z, nbytes / 2); });
  measure("copy_words", [&] { copy<<<VECTOR / 256, 256>>>(x, z, VECTOR); });
  measure("copy_wide", [&] { copy<<<count / 256, 256>>>((float4 *)x, (float4 *)z, count); });
  // The times count only if the results are right.
  float got_y, got_c;
  unsigned got_bins[256], counted = 0;
  CUDA(cudaMemcpy(&got_y, y + VECTOR - 1, sizeof got_y, cudaMemcpyDeviceToHost));
  CUDA(cudaMemcpy(&got_c, c + MATRIX * MATRIX - 1, sizeof got_c, cudaMemcpyDeviceToHost));
  CUDA(cudaMemcpy(got_bins, bins, sizeof got_bins, cudaMemcpyDeviceToHost));
  for (unsigned bin : got_bins)
    counted += bin;
  if (chosen_count)
    return 0;
  if (got_y != 1 + 2.0f * (ROUNDS + 1) || got_c != MATRIX || counted != (unsigned)VECTOR * (ROUNDS + 1)) {
    fprintf(stderr, "wrong results: %g %g %u\n", got_y, got_c, counted);
    return 1;
  }
  return 0;
}
