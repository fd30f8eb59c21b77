// The kernel that replaces a CUDA kernel: it runs the CPU's kernel on the device's memory.
#pragma once
#include "device.h"
#include "operator.h"
#include <ATen/core/dispatch/Dispatcher.h>

namespace vgpu_torch {

class Fallback final : public c10::OperatorKernel {
public:
  explicit Fallback(Operator op) : op_(std::move(op)) {}
  void operator()(const c10::OperatorHandle &handle, c10::DispatchKeySet keys, torch::jit::Stack *stack);

private:
  void run_now(const c10::OperatorHandle &handle, const DeviceStream &stream, torch::jit::Stack *stack) const;
  bool record_unless_refused(const c10::OperatorHandle &handle, const DeviceStream &stream,
                             torch::jit::Stack *stack) const;
  Operator op_;
};

// The operator copy_: torch's own memory copies if no kernel is needed, else the fallback.
class Copy final : public c10::OperatorKernel {
public:
  explicit Copy(Operator op) : fallback_(std::move(op)) {}
  void operator()(const c10::OperatorHandle &handle, c10::DispatchKeySet keys, torch::jit::Stack *stack);

private:
  Fallback fallback_;
};

// The kernel of an operator that is not simulated: it throws.
class Refusal final : public c10::OperatorKernel {
public:
  explicit Refusal(Operator op) : op_(std::move(op)) {}
  void operator()(const c10::OperatorHandle &handle, c10::DispatchKeySet keys, torch::jit::Stack *stack);

private:
  Operator op_;
};

} // namespace vgpu_torch
