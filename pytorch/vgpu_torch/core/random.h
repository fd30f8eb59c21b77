// Random numbers: CPU generators that continue a CUDA generator's sequence.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <mutex>

namespace vgpu_torch {

// `given`, else the default generator of `device`.
at::Generator device_generator(const std::optional<at::Generator> &given, c10::Device device);

std::optional<at::Generator> generator_in(const c10::IValue &value);

// Where a CUDA generator's sequence stands at one operator: numbers, or where a graph's launch puts them.
class RandomState {
public:
  // Advances the generator by `increment`. The device is the current one.
  static RandomState draw(const std::optional<at::Generator> &given, c10::Device device, uint64_t increment);
  // As above, for an operator whose numbers are the CPU's.
  static RandomState draw_for_host(const std::optional<at::Generator> &given, c10::Device device);

  struct Values {
    uint64_t seed, offset;
  };
  // Of a captured operator, only while the graph runs.
  Values read() const;
  // A CPU generator whose seed follows from them, so that each operator draws other numbers and the CUDA generator's
  // state can be saved and restored. The numbers are not a GPU's. A CPU generator that was given stays.
  at::Generator host_generator() const;

private:
  Values values_ = {0, 0};
  const uint64_t *seed_ = nullptr, *offset_ = nullptr; // device memory, as mapped here
  at::Generator given_;                                // the CPU's
};

// Gives the CPU's default generator such a seed, for an operator that takes no generator; restores it at the end.
class DefaultGeneratorScope {
public:
  explicit DefaultGeneratorScope(const RandomState &random);
  ~DefaultGeneratorScope();

private:
  std::unique_lock<std::mutex> lock_; // one operator at a time
  at::Generator generator_;
  at::Tensor state_;
};

} // namespace vgpu_torch
