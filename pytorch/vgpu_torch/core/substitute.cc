#include "substitute.h"
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

namespace vgpu_torch {
namespace {

// self, dim, keepdim, dtype: complex numbers. The CPU's sum lacks those of half precision.
std::optional<at::Tensor> complex_nansum(c10::ArrayRef<c10::IValue> values) {
  const at::Tensor &self = values[0].toTensor();
  if (!self.is_complex())
    return std::nullopt;
  const at::Tensor numbers = at::where(self.isnan(), at::zeros({}, self.options()), self);
  const auto dimensions = values[1].toOptional<std::vector<int64_t>>();
  const at::ScalarType dtype = values[3].toOptional<at::ScalarType>().value_or(self.scalar_type());
  return at::sum(numbers, dimensions ? at::OptionalIntArrayRef(*dimensions) : std::nullopt, values[2].toBool(),
                 dtype == at::kComplexHalf ? at::kComplexFloat : dtype)
      .to(dtype);
}

// self, bins, min, max: integers, in integer arithmetic as CUDA's kernel.
std::optional<at::Tensor> integer_histogram(c10::ArrayRef<c10::IValue> values) {
  const at::Tensor &self = values[0].toTensor();
  const int64_t bins = values[1].toInt();
  if (!at::isIntegralType(self.scalar_type(), /*includeBool=*/false))
    return std::nullopt;
  TORCH_CHECK(bins > 0, "bins must be > 0");
  auto low = values[2].toScalar().to<int64_t>(), high = values[3].toScalar().to<int64_t>();
  if (low == high && self.numel()) {
    low = self.min().item<int64_t>();
    high = self.max().item<int64_t>();
  }
  if (low == high) {
    low--;
    high++;
  }
  TORCH_CHECK(low < high, "max must be larger than min");
  const at::Tensor wide = self.flatten().to(at::kLong);
  const at::Tensor kept = wide.masked_select((wide >= low) & (wide <= high));
  const at::Tensor bin = at::floor_divide((kept - low) * bins, high - low).clamp_max(bins - 1);
  return at::bincount(bin, {}, bins).to(self.scalar_type());
}

// self, dim, half_to_float: half precision in, single precision out. The CPU's kernel lacks the conversion.
template <at::Tensor (*SOFTMAX)(const at::Tensor &, int64_t, bool)>
std::optional<at::Tensor> softmax_of_half(c10::ArrayRef<c10::IValue> values) {
  if (!values[2].toBool())
    return std::nullopt;
  const at::Tensor &self = values[0].toTensor();
  TORCH_CHECK(self.scalar_type() == at::kHalf, "conversion is supported for Half type only");
  return SOFTMAX(self.to(at::kFloat), values[1].toInt(), false);
}

// grad_output, output, dim, input_dtype: the backward pass of softmax_of_half.
template <at::Tensor (*BACKWARD)(const at::Tensor &, const at::Tensor &, int64_t, at::ScalarType)>
std::optional<at::Tensor> softmax_of_half_backward(c10::ArrayRef<c10::IValue> values) {
  const at::Tensor &gradient = values[0].toTensor();
  const at::ScalarType dtype = values[3].toScalarType();
  if (gradient.scalar_type() == dtype)
    return std::nullopt;
  TORCH_CHECK(gradient.scalar_type() == at::kFloat && dtype == at::kHalf,
              "expected input and grad types to match, or input to be at::Half and grad to be at::Float");
  return BACKWARD(gradient, values[1].toTensor(), values[2].toInt(), at::kFloat).to(dtype);
}

} // namespace

Substitute substitute_of(const std::string &name) {
  if (name == "aten::nansum" || name == "aten::nansum.out")
    return complex_nansum;
  if (name == "aten::histc" || name == "aten::histc.out")
    return integer_histogram;
  if (name == "aten::_softmax" || name == "aten::_softmax.out")
    return softmax_of_half<at::_softmax>;
  if (name == "aten::_log_softmax" || name == "aten::_log_softmax.out")
    return softmax_of_half<at::_log_softmax>;
  if (name == "aten::_softmax_backward_data" || name == "aten::_softmax_backward_data.out")
    return softmax_of_half_backward<at::_softmax_backward_data>;
  if (name == "aten::_log_softmax_backward_data" || name == "aten::_log_softmax_backward_data.out")
    return softmax_of_half_backward<at::_log_softmax_backward_data>;
  return nullptr;
}

} // namespace vgpu_torch
