#include "check.h"
#include "arguments.h"
#include <ATen/Context.h>
#include <ATen/core/op_registration/adaption.h>

namespace vgpu_torch {
namespace {

// The order of both of torch's checks: outputs, then inputs.
template <typename F> void visit_outputs_first(const Operator &op, c10::ArrayRef<c10::IValue> values, F &&visit) {
  for (const bool outputs : {true, false})
    for (size_t i = 0; i < values.size(); i++)
      if (op.arguments[i].is_out == outputs)
        for_each_tensor(values[i], [&](const at::Tensor &tensor) { visit(op.arguments[i], tensor); });
}

void check_same(const Operator &op, c10::ArrayRef<c10::IValue> values) {
  std::optional<c10::Device> common;
  visit_outputs_first(op, values, [&](const Argument &argument, const at::Tensor &tensor) {
    if (argument.is_positional || argument.is_out)
      c10::impl::check_and_update_common_device(common, tensor, op.rules.method.c_str(), argument.name.c_str());
  });
}

void check_iterator(const Operator &op, c10::ArrayRef<c10::IValue> values) {
  std::optional<c10::Device> common;
  visit_outputs_first(op, values, [&](const Argument &, const at::Tensor &tensor) {
    if (!common && !tensor.is_cpu())
      common = tensor.device();
  });
  if (!common)
    return;
  visit_outputs_first(op, values, [&](const Argument &argument, const at::Tensor &tensor) {
    const bool cpu_scalar = tensor.is_cpu() && tensor.dim() == 0 && !argument.writes;
    TORCH_CHECK(cpu_scalar || tensor.device() == *common,
                "Expected all tensors to be on the same device, but found at least two devices, ", *common, " and ",
                tensor.device(), "!");
  });
}

void check_indices(const Operator &op, c10::ArrayRef<c10::IValue> values) {
  const at::Tensor &self = values[0].toTensor();
  for (size_t i = 1; i < values.size(); i++) {
    const bool indices = values[i].isOptionalTensorList() || op.arguments[i].name == "indices";
    for_each_tensor(values[i], [&](const at::Tensor &tensor) {
      if (tensor.device() == self.device())
        return;
      TORCH_CHECK(!indices || tensor.is_cpu(),
                  "indices should be either on cpu or on the same device as the indexed tensor (", self.device(), ")");
      TORCH_CHECK(indices || tensor.dim() == 0, "expected self and ", op.arguments[i].name,
                  " to be on the same device, but got self on ", self.device(), " and ", op.arguments[i].name, " on ",
                  tensor.device());
    });
  }
}

void check_convolution(c10::ArrayRef<c10::IValue> values) {
  const at::Tensor &input = values[0].toTensor(), &weight = values[1].toTensor();
  TORCH_CHECK(input.options().type_equal(weight.options()), "Input type (", input.toString(), ") and weight type (",
              weight.toString(), ") should be the same");
  for_each_tensor(values[2], [&](const at::Tensor &bias) {
    TORCH_CHECK(input.options().type_equal(bias.options()), "Input type (", input.toString(), ") and bias type (",
                bias.toString(), ") should be the same");
  });
}

void check_masked_fill(c10::ArrayRef<c10::IValue> values) {
  const at::Tensor &self = values[0].toTensor(), &mask = values[1].toTensor();
  TORCH_CHECK(!self.is_cpu(), "masked_fill_: Expected inputs to be on same device");
  TORCH_CHECK(self.device() == mask.device(), "expected self and mask to be on the same device, but got mask on ",
              mask.device(), " and self on ", self.device());
}

void check_dtype(const Operator &op, c10::ArrayRef<c10::IValue> values) {
  const auto dtype = first_dtype(values);
  TORCH_CHECK_NOT_IMPLEMENTED(!dtype || !(op.rules.refused_dtypes >> static_cast<int>(*dtype) & 1), "\"",
                              op.rules.kernel, "\" not implemented for '", toString(*dtype), "'");
}

bool is_given(const c10::IValue &value) {
  return value.isTensor() ? value.toTensor().defined() : value.isInt() ? value.toInt() != 0 : !value.isNone();
}

// Whether CUDA's kernel uses atomic additions for these arguments.
bool is_nondeterministic(const Operator &op, c10::ArrayRef<c10::IValue> values) {
  const std::string &when = op.rules.alert_when;
  if (when.empty())
    return true;
  const auto dtype = first_dtype(values);
  if (when == "floating")
    return dtype && at::isFloatingType(*dtype);
  const size_t equals = when.find('=');
  for (size_t i = 0; i < values.size(); i++)
    if (op.arguments[i].name == when.substr(0, equals))
      return equals == std::string::npos ? is_given(values[i])
                                         : values[i].toInt() == std::stoi(when.substr(equals + 1));
  return false;
}

} // namespace

std::optional<at::ScalarType> first_dtype(c10::ArrayRef<c10::IValue> values) {
  std::optional<at::ScalarType> dtype;
  for (const c10::IValue &value : values) {
    for_each_tensor(value, [&](const at::Tensor &tensor) {
      if (!dtype)
        dtype = tensor.scalar_type();
    });
    if (dtype)
      break;
  }
  return dtype;
}

void check_call(const Operator &op, c10::ArrayRef<c10::IValue> values) {
  switch (op.rules.device) {
  case DeviceRule::SAME:
    check_same(op, values);
    break;
  case DeviceRule::ITERATOR:
    check_iterator(op, values);
    break;
  case DeviceRule::INDICES:
    check_indices(op, values);
    break;
  case DeviceRule::CONVOLUTION:
    check_convolution(values);
    break;
  case DeviceRule::MASKED_FILL:
    check_masked_fill(values);
    break;
  case DeviceRule::NONE:
    break;
  }
  if (op.rules.refused_dtypes)
    check_dtype(op, values);
  if (op.limit)
    op.limit(op, values);
  if (!op.rules.alert.empty() && at::globalContext().deterministicAlgorithms() && is_nondeterministic(op, values))
    at::globalContext().alertNotDeterministic(op.rules.alert.c_str());
}

} // namespace vgpu_torch
