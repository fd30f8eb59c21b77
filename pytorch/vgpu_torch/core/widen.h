// Narrow dtypes for which CUDA has a kernel and the CPU has none: half precision is computed in single precision, then
// rounded; bool is computed as bytes, for the operators for which CUDA supports bool.
#pragma once
#include "operator.h"
#include <ATen/core/dispatch/Dispatcher.h>

namespace vgpu_torch {

// Whether a CPU kernel's error says that it lacks a narrow dtype.
bool is_lack_of_narrow(const Operator &op, const std::string &message);

// Runs the CPU kernel on widened copies of `arguments`; leaves narrow results on the stack.
void run_widened(const c10::OperatorHandle &handle, const Operator &op, c10::DispatchKey key,
                 std::vector<c10::IValue> arguments, torch::jit::Stack &stack);

} // namespace vgpu_torch
