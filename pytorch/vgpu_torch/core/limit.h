// What CUDA's kernels refuse besides dtypes: sizes, numbers of dimensions, dtypes of one of several modes.
#pragma once
#include "operator.h"
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

namespace vgpu_torch {

// The check of the operator with that name; nullptr: there is none.
Limit limit_of(const std::string &name);

} // namespace vgpu_torch
