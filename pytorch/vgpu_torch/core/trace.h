// Records which operators run, for tools/find_dtypes.py; off by default.
#pragma once
#include "operator.h"
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

namespace vgpu_torch {

void trace_set(bool on);
void trace_call(const Operator &op, c10::ArrayRef<c10::IValue> values);
std::string trace_text();

} // namespace vgpu_torch
