// What the test programs share: arguments, random input, error checks and the verdict.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include <cuda_runtime.h>

// Any CUDA error that a program does not expect ends it with a FAIL line that names the call.
#define CUDA(call)                                                                                                     \
  do {                                                                                                                 \
    cudaError_t error_ = (call);                                                                                       \
    if (error_ != cudaSuccess)                                                                                         \
      vgt_fail("%s:%d: %s: %s", __FILE__, __LINE__, #call, cudaGetErrorName(error_));                                  \
  } while (0)

#define EXPECT(condition, ...)                                                                                         \
  do {                                                                                                                 \
    if (!(condition))                                                                                                  \
      vgt_fail(__VA_ARGS__);                                                                                           \
  } while (0)

// A call that must return exactly the error `expected`.
#define EXPECT_ERROR(call, expected)                                                                                   \
  do {                                                                                                                 \
    cudaError_t error_ = (call);                                                                                       \
    if (error_ != (expected))                                                                                          \
      vgt_fail("%s:%d: %s: %s instead of %s", __FILE__, __LINE__, #call, cudaGetErrorName(error_),                     \
               cudaGetErrorName(expected));                                                                            \
  } while (0)

static void vgt_fail(const char *format, ...) {
  va_list args;
  va_start(args, format);
  printf("FAIL ");
  vprintf(format, args);
  printf("\n");
  va_end(args);
  fflush(stdout);
  _Exit(1);
}

struct vgt_args {
  unsigned seed;
  int size;
};

// Arguments of a program: `program [seed [size]]`
static inline vgt_args vgt_parse(int argc, char **argv, int default_size) {
  vgt_args args = {1, default_size};
  if (argc > 1)
    args.seed = (unsigned)strtoul(argv[1], nullptr, 10);
  if (argc > 2)
    args.size = atoi(argv[2]);
  EXPECT(args.size > 0, "size %d is not positive", args.size);
  return args;
}

// Whole numbers in a small range, as floats: sums and products of a few thousand of them are exact in any order.
static inline std::vector<float> vgt_floats(std::mt19937 &random, size_t count, int low = -8, int high = 8) {
  std::uniform_int_distribution<int> digits(low, high);
  std::vector<float> values(count);
  for (float &value : values)
    value = (float)digits(random);
  return values;
}

static inline std::vector<unsigned> vgt_words(std::mt19937 &random, size_t count) {
  std::vector<unsigned> values(count);
  for (unsigned &value : values)
    value = random();
  return values;
}

template <typename T> static T *vgt_upload(const std::vector<T> &values) {
  T *device = nullptr;
  CUDA(cudaMalloc(&device, values.size() * sizeof(T)));
  CUDA(cudaMemcpy(device, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return device;
}

template <typename T> static std::vector<T> vgt_download(const T *device, size_t count) {
  std::vector<T> values(count);
  CUDA(cudaMemcpy(values.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost));
  return values;
}
