// Arithmetic against the CPU's: whole numbers of 8 to 64 bits, bit operations, conversions, and the mathematical
// functions in single and double precision within the errors that NVIDIA's programming guide gives (in units of the
// last place).
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "vgt_check.h"

constexpr int WORDS = 12, FLOATS = 14, DOUBLES = 10;

__host__ __device__ static void integers(uint64_t x, uint64_t y, uint64_t *out) {
  int64_t sx = (int64_t)x, sy = (int64_t)y;
  uint32_t lx = (uint32_t)x, ly = (uint32_t)y;
  out[0] = x * y;
  out[1] = x / (y | 1);
  out[2] = x % (y | 1);
  out[3] = (uint64_t)(sx / (sy | 3));
  out[4] = (uint64_t)(sx % (sy | 3));
  out[5] = (lx / (ly | 1)) + ((uint64_t)((int32_t)lx / ((int32_t)ly | 3)) << 32);
  out[6] = (uint64_t)((int8_t)x * (int16_t)y) ^ (uint8_t)(x >> 8);
  out[7] = (x << (y & 63)) ^ (uint64_t)(sx >> (x & 63));
  out[8] = (uint64_t)(sx < sy ? sx : sy) + (x > y ? x : y);
  out[9] = (uint64_t)(int64_t)(double)(sx >> 1) ^ (uint64_t)(int64_t)(float)(int32_t)ly ^ (uint64_t)(double)(x >> 1);
  out[10] = sx < sy ? x - y : x + y;
  out[11] = (x >> 32) * (uint64_t)ly + (lx ^ ~ly);
}

__global__ void run_integers(const uint64_t *x, const uint64_t *y, uint64_t *out, uint64_t *bits, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  integers(x[i], y[i], out + (size_t)i * WORDS);
  uint32_t word = (uint32_t)x[i];
  bits[i] = (uint64_t)__popc(word) + ((uint64_t)__clz((int)word) << 8) + ((uint64_t)__ffs((int)word) << 16) +
            ((uint64_t)__popcll(x[i]) << 24) + ((uint64_t)__brev(word) << 32);
  bits[i] ^= __umulhi(word, (uint32_t)y[i]) ^ __byte_perm(word, (uint32_t)y[i], 0x5173) ^ __umul64hi(x[i], y[i]);
}

static uint64_t expected_bits(uint64_t x, uint64_t y) {
  uint32_t word = (uint32_t)x, other = (uint32_t)y, reversed = 0, permuted = 0;
  for (int bit = 0; bit < 32; bit++)
    reversed |= (word >> bit & 1) << (31 - bit);
  uint64_t pair = (uint64_t)other << 32 | word;
  int selectors[] = {3, 7, 1, 5};
  for (int byte = 0; byte < 4; byte++)
    permuted |= (uint32_t)(pair >> 8 * selectors[byte] & 0xff) << 8 * byte;
  uint64_t bits = (uint64_t)__builtin_popcount(word) + ((uint64_t)(word ? __builtin_clz(word) : 32) << 8) +
                  ((uint64_t)__builtin_ffs((int)word) << 16) + ((uint64_t)__builtin_popcountll(x) << 24) +
                  ((uint64_t)reversed << 32);
  return bits ^ (uint32_t)((uint64_t)word * other >> 32) ^ permuted ^ (uint64_t)((unsigned __int128)x * y >> 64);
}

template <typename T> __host__ __device__ static void functions(T x, T *out) {
  out[0] = x / T(3.7);
  out[1] = sqrt(fabs(x));
  out[2] = x * x + T(0.1); // the device contracts this to an FMA with one rounding: within one unit
  out[3] = floor(x) + ceil(x) + trunc(x) + rint(x);
  out[4] = fmod(x, T(1.5));
  out[5] = exp(x);
  out[6] = log(fabs(x) + T(0.5));
  out[7] = sin(x);
  out[8] = cos(x);
  out[9] = tanh(x);
}

__host__ __device__ static void more(float x, float *out) {
  functions(x, out);
  out[10] = powf(fabsf(x) + 0.1f, 1.7f);
  out[11] = atan2f(x, 2.0f);
  out[12] = erff(x);
  out[13] = cbrtf(x);
}

__global__ void run_functions(const float *x, float *singles, double *doubles, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  more(x[i], singles + (size_t)i * FLOATS);
  functions((double)x[i], doubles + (size_t)i * DOUBLES);
}

int main(int argc, char **argv) {
  vgt_args args = vgt_parse(argc, argv, 4099);
  std::mt19937 random(args.seed);
  int n = args.size, blocks = (n + 127) / 128;
  std::vector<uint64_t> x(n), y(n);
  for (int i = 0; i < n; i++) {
    x[i] = ((uint64_t)random() << 32 | random()) >> random() % 64;
    y[i] = ((uint64_t)random() << 32 | random()) >> random() % 64;
  }
  uint64_t *dx = vgt_upload(x), *dy = vgt_upload(y), *words = nullptr, *bits = nullptr;
  CUDA(cudaMalloc(&words, (size_t)n * WORDS * sizeof(uint64_t)));
  CUDA(cudaMalloc(&bits, n * sizeof(uint64_t)));
  run_integers<<<blocks, 128>>>(dx, dy, words, bits, n);
  CUDA(cudaGetLastError());
  std::vector<uint64_t> got_words = vgt_download(words, (size_t)n * WORDS), got_bits = vgt_download(bits, n);
  for (int i = 0; i < n; i++) {
    uint64_t expected[WORDS];
    integers(x[i], y[i], expected);
    for (int k = 0; k < WORDS; k++)
      EXPECT(got_words[i * WORDS + k] == expected[k], "arithmetic: expression %d of %llx, %llx is %llx instead of %llx",
             k, (long long)x[i], (long long)y[i], (long long)got_words[i * WORDS + k], (long long)expected[k]);
    EXPECT(got_bits[i] == expected_bits(x[i], y[i]), "arithmetic: bits of %llx, %llx are %llx instead of %llx",
           (long long)x[i], (long long)y[i], (long long)got_bits[i], (long long)expected_bits(x[i], y[i]));
  }

  std::uniform_real_distribution<float> reals(-6, 6);
  std::vector<float> inputs(n);
  for (float &value : inputs)
    value = reals(random);
  float *reals_in = vgt_upload(inputs), *singles = nullptr;
  double *doubles = nullptr;
  CUDA(cudaMalloc(&singles, (size_t)n * FLOATS * sizeof(float)));
  CUDA(cudaMalloc(&doubles, (size_t)n * DOUBLES * sizeof(double)));
  run_functions<<<blocks, 128>>>(reals_in, singles, doubles, n);
  CUDA(cudaGetLastError());
  std::vector<float> got_singles = vgt_download(singles, (size_t)n * FLOATS);
  std::vector<double> got_doubles = vgt_download(doubles, (size_t)n * DOUBLES);
  // Error bounds in units of the last place of the result, or of 1 where the result is smaller: the guide's bound, plus
  // one for the CPU's library.
  const double single_ulps[FLOATS] = {1, 1, 2, 0, 1, 3, 2, 3, 3, 3, 5, 4, 3, 2}, double_ulps = 4;
  for (int i = 0; i < n; i++) {
    float expected[FLOATS];
    double precise[DOUBLES];
    more(inputs[i], expected);
    functions((double)inputs[i], precise);
    for (int k = 0; k < FLOATS; k++) {
      double allowed = single_ulps[k] * std::max(1.0, fabs((double)expected[k])) * 1.2e-7;
      EXPECT(fabs((double)got_singles[i * FLOATS + k] - expected[k]) <= allowed,
             "arithmetic: single function %d of %.9g is %.9g instead of %.9g", k, inputs[i],
             got_singles[i * FLOATS + k], expected[k]);
    }
    for (int k = 0; k < DOUBLES; k++) {
      double allowed = double_ulps * std::max(1.0, fabs(precise[k])) * 2.3e-16;
      EXPECT(fabs(got_doubles[i * DOUBLES + k] - precise[k]) <= allowed,
             "arithmetic: double function %d of %.17g is %.17g instead of %.17g", k, (double)inputs[i],
             got_doubles[i * DOUBLES + k], precise[k]);
    }
  }
  for (void *device :
       {(void *)dx, (void *)dy, (void *)words, (void *)bits, (void *)reals_in, (void *)singles, (void *)doubles})
    CUDA(cudaFree(device));
  printf("ok arithmetic n=%d\n", n);
  return 0;
}
