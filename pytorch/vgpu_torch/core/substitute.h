// Dtypes that CUDA's kernels support and the CPU's do not: other CPU operators compute the result.
#pragma once
#include "operator.h"

namespace vgpu_torch {

// The substitute for the operator `name`; nullptr if the CPU's kernel supports all dtypes that CUDA's kernel supports.
Substitute substitute_of(const std::string &name);

} // namespace vgpu_torch
