// Dtypes that CUDA's kernels have and the CPU's lack, computed by other operators of the CPU.
#pragma once
#include "operator.h"

namespace vgpu_torch {

// What computes the operator with that name where its dtype needs it; nullptr: the CPU has what CUDA has.
Substitute substitute_of(const std::string &name);

} // namespace vgpu_torch
