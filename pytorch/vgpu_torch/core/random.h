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

// A CUDA generator's seed and offset at one operator: values, or in a graph the memory that a launch writes them to.
class RandomState {
public:
  // Advances the generator by `increment`. `device` must be the current device.
  static RandomState draw(const std::optional<at::Generator> &given, c10::Device device, uint64_t increment);
  // As draw(), for an operator that draws the CPU's numbers; `given` may be a CPU generator.
  static RandomState draw_for_host(const std::optional<at::Generator> &given, c10::Device device);

  struct Values {
    uint64_t seed, offset;
  };
  // For a captured operator: may be called only while the graph runs.
  Values read() const;
  // A CPU generator seeded with a hash of the values, so that each operator draws different numbers and the CUDA
  // generator's state can be saved and restored. The numbers are not a GPU's. Returns a given CPU generator as it is.
  at::Generator host_generator() const;

private:
  Values values_ = {0, 0};
  const uint64_t *seed_ = nullptr, *offset_ = nullptr; // device memory mapped in this process
  at::Generator given_;                                // a given CPU generator
};

// Seeds the CPU's default generator like host_generator(), for operators without a generator; later restores it.
class DefaultGeneratorScope {
public:
  explicit DefaultGeneratorScope(const RandomState &random);
  ~DefaultGeneratorScope();

private:
  std::unique_lock<std::mutex> lock_; // only one operator at a time may use the default generator
  at::Generator generator_;
  at::Tensor state_;
};

} // namespace vgpu_torch
