// Operators that run in stream order: recorded at the call, with results that have memory and shape but no contents
// yet.
#pragma once
#include "mirror.h"
#include "operator.h"
#include <ATen/core/dispatch/Dispatcher.h>

namespace vgpu_torch {

// Whether every tensor can be addressed when the operator will run.
bool record_is_possible(const Operator &op, c10::ArrayRef<c10::IValue> given);

// Replaces the arguments on the stack by results whose contents nobody has computed. `op` is never destroyed.
void record_results(const Operator &op, const c10::OperatorHandle &handle, const DeviceStream &stream,
                    torch::jit::Stack *stack);

// The same, and has the operator run in stream order.
void record(const Operator &op, const c10::OperatorHandle &handle, const DeviceStream &stream,
            torch::jit::Stack *stack);

} // namespace vgpu_torch
