#include "limit.h"
#include <ATen/core/Tensor.h>
#include <set>
#include <torch/csrc/api/include/torch/version.h>

namespace vgpu_torch {
namespace {

constexpr int64_t DIMENSIONS_MAX = 25; // capacity of a TensorInfo; torch's check leaves the last entry unused

void check_dimensions(const Operator &, c10::ArrayRef<c10::IValue> values) {
  TORCH_CHECK(values[0].toTensor().dim() < DIMENSIONS_MAX, "CUDA Tensors cannot have more than ", DIMENSIONS_MAX,
              " dimensions");
}

// self, dim, normalization, and then for c2r the size of the last dimension. torch 2.14 transforms bfloat16.
void check_transform(const Operator &op, c10::ArrayRef<c10::IValue> values) {
  const at::Tensor &self = values[0].toTensor();
  if (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 14)
    TORCH_CHECK(self.scalar_type() != at::kBFloat16, "cuFFT doesn't support tensor of type: ", self.scalar_type());
  if (self.scalar_type() != at::kHalf && self.scalar_type() != at::kComplexHalf)
    return;
  std::vector<int64_t> sizes;
  for (const int64_t d : values[1].toIntVector())
    sizes.push_back(self.size(d));
  if (op.name.rfind("aten::_fft_c2r", 0) == 0 && !sizes.empty())
    sizes.back() = values[3].toInt();
  for (const int64_t n : sizes)
    TORCH_CHECK(n > 0 && (n & (n - 1)) == 0,
                "cuFFT only supports dimensions whose sizes are powers of two when computing in half precision, but "
                "got a signal size of",
                c10::IntArrayRef(sizes));
}

void check_reduction_of_truth(const Operator &op, c10::ArrayRef<c10::IValue> values) {
  const std::string &reduction = values[4].toStringRef();
  const bool has_none = reduction == "prod" || reduction == "amin" || reduction == "amax";
  TORCH_CHECK_NOT_IMPLEMENTED(values[0].toTensor().scalar_type() != at::kBool || !has_none, "\"", op.rules.kernel,
                              "\" not implemented for 'Bool'");
}

// Checks the keyword arguments, which the generated wrapper does not check.
void check_segments(const Operator &op, c10::ArrayRef<c10::IValue> values) {
  for (size_t i = 1; i < values.size(); i++)
    if (values[i].isTensor() && values[i].toTensor().defined())
      TORCH_CHECK(values[i].toTensor().get_device() == values[0].toTensor().get_device(),
                  "Expected data.get_device() == ", op.arguments[i].name,
                  "_value.get_device() to be true, but got false.  (Could this error message be improved?  If so, "
                  "please report an enhancement request to PyTorch.)");
}

// boundaries, values, and sorter among the keyword arguments.
void check_sorter(const Operator &op, c10::ArrayRef<c10::IValue> values) {
  const at::Tensor &boundaries = values[0].toTensor();
  for (size_t i = 2; i < values.size(); i++)
    if (op.arguments[i].name == "sorter" && values[i].isTensor() && values[i].toTensor().defined())
      TORCH_CHECK(values[i].toTensor().device() == boundaries.device(),
                  "torch.searchsorted(): sorter and boundary tensors should have same device type, but got sorter "
                  "tensor device type ",
                  values[i].toTensor().device(), " and input value tensor device type ", boundaries.device());
}

} // namespace

Limit limit_of(const std::string &name) {
  static const std::set<std::string> TENSOR_INFO = {"aten::median.dim_values", "aten::nanmedian.dim_values",
                                                    "aten::kthvalue.values", "aten::mode"};
  if (TENSOR_INFO.count(name))
    return check_dimensions;
  if (name.rfind("aten::_fft_", 0) == 0)
    return check_transform;
  if (name.rfind("aten::searchsorted", 0) == 0)
    return check_sorter;
  if (name.rfind("aten::segment_reduce", 0) == 0)
    return check_segments;
  if (name.rfind("aten::scatter_reduce", 0) == 0)
    return check_reduction_of_truth;
  return nullptr;
}

} // namespace vgpu_torch
