// Philox 4x32-10 (Salmon et al., SC 2011) and the transformations of cuRAND's device functions.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>

namespace vgpu_torch {

using Philox4 = std::array<uint32_t, 4>;

// The numbers that thread `subsequence` of a kernel draws in its call number `call`, after curand_init(seed,
// subsequence, offset) with an offset that is a multiple of 4.
inline Philox4 philox(uint64_t seed, uint64_t subsequence, uint64_t offset, uint64_t call) {
  const uint64_t position = offset / 4 + call;
  Philox4 c = {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32),
               static_cast<uint32_t>(subsequence), static_cast<uint32_t>(subsequence >> 32)};
  uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  for (int round = 0; round < 10; round++) {
    const uint64_t low = 0xD2511F53ull * c[0], high = 0xCD9E8D57ull * c[2];
    c = {static_cast<uint32_t>(high >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(high),
         static_cast<uint32_t>(low >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(low)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return c;
}

// Uniform in (0, 1]: the middle of the 2^32 (or 2^53) intervals, rounded.
inline float philox_uniform(uint32_t x) { return static_cast<float>(x) * 0x1p-32f + 0x1p-33f; }
inline double philox_uniform_double(uint32_t x, uint32_t y) {
  return static_cast<double>(x ^ (static_cast<uint64_t>(y) << 21)) * 0x1p-53 + 0x1p-54;
}

// Box-Muller. A GPU computes sine and cosine with fewer bits: its single precision values differ by up to 1e-6.
inline std::array<float, 2> philox_normal(uint32_t x, uint32_t y) {
  constexpr float TWO_PI_SCALED = 6.283185307f * 0x1p-32f;
  const float radius = std::sqrt(-2.0f * std::log(philox_uniform(x)));
  const float angle = static_cast<float>(y) * TWO_PI_SCALED + TWO_PI_SCALED / 2;
  return {radius * std::sin(angle), radius * std::cos(angle)};
}
inline std::array<double, 2> philox_normal_double(uint32_t x0, uint32_t x1, uint32_t y0, uint32_t y1) {
  const double radius = std::sqrt(-2.0 * std::log(philox_uniform_double(x0, x1)));
  const double angle = 2 * philox_uniform_double(y0, y1) * M_PI;
  return {radius * std::sin(angle), radius * std::cos(angle)};
}

} // namespace vgpu_torch
