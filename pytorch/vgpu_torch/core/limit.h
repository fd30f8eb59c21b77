// What CUDA's kernels refuse besides an operator's refused dtypes: sizes, dimensions, dtypes in one of several modes.
#pragma once
#include "operator.h"
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

namespace vgpu_torch {

// The check for the operator `name`, or nullptr.
Limit limit_of(const std::string &name);

} // namespace vgpu_torch
