#include "launch_layout.h"
#include "device.h"

namespace vgpu_torch {
namespace {

constexpr int64_t BLOCK = 256;
constexpr uint64_t CALL_INCREMENT = 4; // a call of a cuRAND function advances the offset by at most this
constexpr uint64_t BERNOULLI_INCREMENT = 12;

int64_t blocks_for(int64_t numel, c10::Device device) {
  const int64_t fit =
      static_cast<int64_t>(device_multiprocessors(device)) * (device_threads_per_multiprocessor(device) / BLOCK);
  return std::min(fit, (numel + BLOCK - 1) / BLOCK);
}

} // namespace

Draws Draws::of_distribution(const at::Tensor &self, int unroll, const std::optional<at::Generator> &generator) {
  const int64_t threads = BLOCK * blocks_for(self.numel(), self.device());
  const uint64_t calls = (self.numel() - 1) / (threads * unroll) + 1;
  return Draws(self, generator, threads, calls * CALL_INCREMENT);
}

Draws Draws::of_bernoulli(const at::Tensor &self, const std::optional<at::Generator> &generator) {
  return Draws(self, generator, (self.numel() + 3) / 4, BERNOULLI_INCREMENT);
}

Draws::Draws(const at::Tensor &self, const std::optional<at::Generator> &generator, int64_t threads, uint64_t increment)
    : random_(RandomState::draw(generator, self.device(), increment)), numel_(self.numel()), threads_(threads) {}

int dropout_vector_size(const at::Tensor &self) {
  if (!self.is_non_overlapping_and_dense())
    return 1;
  const auto address = reinterpret_cast<uintptr_t>(self.const_data_ptr());
  const int64_t item = self.itemsize();
  int vector = static_cast<int>(16 / item);
  while (vector > 1 && (address % (vector * item) || self.numel() % vector))
    vector /= 2;
  return vector;
}

} // namespace vgpu_torch
