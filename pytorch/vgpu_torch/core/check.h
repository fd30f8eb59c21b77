// Checks for what CUDA refuses and a CPU kernel would accept: tensors of several devices, dtypes that CUDA's kernel
// lacks.
#pragma once
#include "operator.h"
#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>
#include <optional>

namespace vgpu_torch {

// Throws as CUDA's wrapper or kernel would. `values` are the call's arguments, in the schema's order.
void check_call(const Operator &op, c10::ArrayRef<c10::IValue> values);

// The dtype that CUDA's kernel is chosen by: of the first tensor.
std::optional<at::ScalarType> first_dtype(c10::ArrayRef<c10::IValue> values);

} // namespace vgpu_torch
