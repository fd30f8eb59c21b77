// The statistics that layer and batch normalisation return with their output, as CUDA's kernels give them: in single
// precision of half precision, and those of batch normalisation in evaluation, too, where the CPU's kernel returns
// none. Outputs and gradients are those of the CPU's kernels, which take statistics in half precision.
#pragma once
#include "operator.h"

namespace vgpu_torch {

// How to call the CPU's kernel of the operator `name`; nullptr for operators without such statistics.
CpuCall statistics_call_of(const std::string &name);

} // namespace vgpu_torch
