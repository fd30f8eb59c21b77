// Random operators that give the simulated GPU's numbers: Philox, assigned to threads as in torch's own launches.
#pragma once
#include "operator.h"
#include <ATen/core/dispatch/Dispatcher.h>

namespace vgpu_torch {

class Distribution final : public c10::OperatorKernel {
public:
  explicit Distribution(Operator op) : op_(std::move(op)) {}
  void operator()(const c10::OperatorHandle &handle, c10::DispatchKeySet keys, torch::jit::Stack *stack);
  // Whether this class implements the operator.
  static bool knows(const std::string &name);

private:
  bool draw_complex(const c10::OperatorHandle &handle, std::vector<c10::IValue> values, torch::jit::Stack &stack);
  Operator op_;
};

} // namespace vgpu_torch
