// Access to the tensors in the arguments or results of a boxed call.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

namespace vgpu_torch {

// Calls `visit(tensor)` for every defined tensor in `value`, through lists and optionals.
template <typename F> void for_each_tensor(const c10::IValue &value, F &&visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined())
      visit(value.toTensor());
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    for (const c10::IValue &item : value.toListRef())
      if (item.isTensor() && item.toTensor().defined())
        visit(item.toTensor());
  }
}

// Replaces every tensor in `value` by `change(tensor)`.
template <typename F> void replace_tensors(c10::IValue &value, F &&change) {
  if (value.isTensor()) {
    value = change(value.toTensor());
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> changed;
    changed.reserve(value.toListRef().size());
    for (const c10::IValue &item : value.toListRef())
      changed.push_back(change(item.toTensor()));
    value = changed;
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> changed;
    for (const std::optional<at::Tensor> &tensor : value.toOptionalTensorVector())
      changed.push_back(tensor ? std::optional<at::Tensor>(change(*tensor)) : std::nullopt);
    value = changed;
  }
}

} // namespace vgpu_torch
