// Quantised tensors: integers with a quantiser, which for scales per channel holds tensors of its own.
#include "mirror.h"
#include <ATen/quantized/QTensorImpl.h>
#include <ATen/quantized/Quantizer.h>

namespace vgpu_torch {
namespace {

at::QuantizerPtr quantizer_on(const at::QuantizerPtr &quantizer, c10::Device device) {
  switch (quantizer->qscheme()) {
  case at::kPerTensorAffine:
    return quantizer; // numbers alone
  case at::kPerChannelAffine:
  case at::kPerChannelAffineFloatQParams: {
    const auto &affine = static_cast<const at::PerChannelAffineQuantizer &>(*quantizer);
    return at::make_per_channel_affine_quantizer(affine.scales().to(device), affine.zero_points().to(device),
                                                 affine.axis(), affine.scalar_type());
  }
  default:
    TORCH_CHECK_NOT_IMPLEMENTED(false, "vgpu: quantisation ", toString(quantizer->qscheme()), " is not simulated");
  }
}

} // namespace

at::Tensor quantized_over(c10::Storage storage, c10::Device device, const at::Tensor &like, int64_t offset) {
  const auto key = device.is_cuda() ? c10::DispatchKey::QuantizedCUDA : c10::DispatchKey::QuantizedCPU;
  at::Tensor tensor = at::detail::make_tensor<at::QTensorImpl>(std::move(storage), c10::DispatchKeySet(key),
                                                               like.dtype(), quantizer_on(like.quantizer(), device));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), offset);
  return tensor;
}

void quantized_set_quantizer(const at::Tensor &from, const at::Tensor &to) {
  at::get_qtensorimpl(to)->set_quantizer_(quantizer_on(from.quantizer(), to.device()));
}

} // namespace vgpu_torch
