// The CPU's kernel of an operator, called on CPU tensors.
#pragma once
#include "operator.h"
#include <ATen/core/dispatch/Dispatcher.h>

namespace vgpu_torch {

// The dispatch key of the kernel for these arguments: dense, or a sparse layout.
c10::DispatchKey cpu_key(c10::ArrayRef<c10::IValue> values);

// Runs it on the arguments on the stack, and leaves the results there; in single precision where it lacks a narrow
// type.
void run_on_cpu(const Operator &op, const c10::OperatorHandle &handle, c10::DispatchKey key, torch::jit::Stack *stack);

} // namespace vgpu_torch
