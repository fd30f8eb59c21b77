// Random numbers: CPU generators that continue a CUDA generator's sequence.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <mutex>

namespace vgpu_torch {

// `given`, else the default generator of `device`.
at::Generator device_generator(const std::optional<at::Generator> &given, c10::Device device);

// A CPU generator whose seed follows from the CUDA generator's seed and offset. The offset is advanced, so that each
// operator draws other numbers and the generator's state can be saved and restored. The numbers are not a GPU's.
at::Generator host_generator(const std::optional<at::Generator> &given, c10::Device device);

// Gives the CPU's default generator such a seed, for an operator that takes no generator; restores it at the end.
class DefaultGeneratorScope {
public:
  explicit DefaultGeneratorScope(c10::Device device);
  ~DefaultGeneratorScope();

private:
  std::unique_lock<std::mutex> lock_; // one operator at a time
  at::Generator generator_;
  at::Tensor state_;
};

} // namespace vgpu_torch
