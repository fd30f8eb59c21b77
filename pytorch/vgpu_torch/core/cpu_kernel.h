// Calls an operator's CPU kernel with CPU tensors.
#pragma once
#include "operator.h"
#include <ATen/core/dispatch/Dispatcher.h>

namespace vgpu_torch {

// The dispatch key of the CPU kernel for these arguments: dense, quantised or a sparse layout.
c10::DispatchKey cpu_key(c10::ArrayRef<c10::IValue> values);

// Runs the CPU kernel with the arguments on the stack, and leaves the results there. If the kernel lacks a narrow
// dtype, it runs with a wider one.
void run_on_cpu(const Operator &op, const c10::OperatorHandle &handle, c10::DispatchKey key, torch::jit::Stack *stack);

} // namespace vgpu_torch
