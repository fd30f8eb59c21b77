#include "random.h"
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

namespace vgpu_torch {
namespace {

constexpr uint64_t OFFSET_STEP = 4; // a Philox round gives four numbers; torch requires multiples of it
std::mutex default_generator_mutex;

// Mixes seed and offset (the odd constants of SplitMix64 and of a 64-bit linear congruential generator).
uint64_t host_seed(uint64_t seed, uint64_t offset) {
  return offset == 0 ? seed : seed * 0x9E3779B97F4A7C15u + offset * 0xD1342543DE82EF95u + 1;
}

} // namespace

at::Generator device_generator(const std::optional<at::Generator> &given, c10::Device device) {
  return given && given->defined() ? *given : at::globalContext().defaultGenerator(device);
}

at::Generator host_generator(const std::optional<at::Generator> &given, c10::Device device) {
  at::Generator generator = device_generator(given, device);
  if (generator.device().is_cpu())
    return generator;
  const std::lock_guard<std::mutex> lock(generator.mutex());
  const uint64_t offset = generator.get_offset();
  generator.set_offset(offset + OFFSET_STEP);
  return at::make_generator<at::CPUGeneratorImpl>(host_seed(generator.current_seed(), offset));
}

DefaultGeneratorScope::DefaultGeneratorScope(c10::Device device)
    : lock_(default_generator_mutex), generator_(at::detail::getDefaultCPUGenerator()) {
  const uint64_t seed = host_generator(std::nullopt, device).current_seed();
  state_ = generator_.get_state();
  generator_.set_current_seed(seed);
}

DefaultGeneratorScope::~DefaultGeneratorScope() { generator_.set_state(state_); }

} // namespace vgpu_torch
