// Checks of arguments that CUDA refuses and a CPU kernel accepts: tensors on several devices, dtypes that CUDA's kernel
// lacks.
#pragma once
#include "operator.h"
#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>
#include <optional>

namespace vgpu_torch {

// Throws the error that CUDA's wrapper or kernel throws. `values` are the call's arguments, in the schema's order.
void check_call(const Operator &op, c10::ArrayRef<c10::IValue> values);

// The dtype of the first tensor, by which CUDA's kernel is selected.
std::optional<at::ScalarType> first_dtype(c10::ArrayRef<c10::IValue> values);

} // namespace vgpu_torch
