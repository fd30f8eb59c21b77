// Random operators with the numbers of the GPU that is simulated: Philox, drawn by the threads of torch's own launches.
#pragma once
#include "operator.h"
#include <ATen/core/dispatch/Dispatcher.h>

namespace vgpu_torch {

class Distribution final : public c10::OperatorKernel {
public:
  explicit Distribution(Operator op) : op_(std::move(op)) {}
  void operator()(const c10::OperatorHandle &handle, c10::DispatchKeySet keys, torch::jit::Stack *stack);
  // Whether the operator is one of those.
  static bool knows(const std::string &name);

private:
  Operator op_;
};

} // namespace vgpu_torch
