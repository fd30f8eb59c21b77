// Operators that run in stream order: the call records the operator, and returns results with memory and shape but
// without contents.
#pragma once
#include "mirror.h"
#include "operator.h"
#include <ATen/core/dispatch/Dispatcher.h>

namespace vgpu_torch {

// Whether every tensor can be addressed in place when the recorded operator runs.
bool record_is_possible(const Operator &op, c10::ArrayRef<c10::IValue> given);

// Replaces the arguments on the stack by results with undefined contents. `op` must never be destroyed.
void record_results(const Operator &op, const c10::OperatorHandle &handle, const DeviceStream &stream,
                    torch::jit::Stack *stack);

// As record_results, and enqueues the operator in the stream.
void record(const Operator &op, const c10::OperatorHandle &handle, const DeviceStream &stream,
            torch::jit::Stack *stack);

} // namespace vgpu_torch
