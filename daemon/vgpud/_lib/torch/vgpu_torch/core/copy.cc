#include "arguments.h"
#include "fallback.h"
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

namespace at::native {
Tensor &copy_(Tensor &self, const Tensor &src, bool non_blocking);
}

namespace vgpu_torch {
namespace {

// Whether torch copies these by memcpy alone, without a kernel.
bool needs_no_kernel(const at::Tensor &a, const at::Tensor &b) {
  const bool same =
      a.dtype() == b.dtype() && a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg() && a.sizes() == b.sizes();
  return same &&
         ((a.is_contiguous() && b.is_contiguous()) || (a.is_non_overlapping_and_dense() && a.strides() == b.strides()));
}

} // namespace

void Copy::operator()(const c10::OperatorHandle &handle, c10::DispatchKeySet keys, torch::jit::Stack *stack) {
  at::Tensor self = torch::jit::peek(*stack, 0, 3).toTensor();
  at::Tensor source = torch::jit::peek(*stack, 1, 3).toTensor();
  const bool non_blocking = torch::jit::peek(*stack, 2, 3).toBool();
  const bool strided = self.layout() == c10::kStrided && source.layout() == c10::kStrided;
  const bool between_devices = self.is_cuda() && source.is_cuda() && self.device() != source.device();
  if (strided && between_devices && !needs_no_kernel(self, source)) {
    // Converted on the source's device first, then copied as bytes.
    const auto options = self.options().device(source.device());
    at::Tensor converted = self.is_non_overlapping_and_dense()
                               ? at::empty_strided(self.sizes(), self.strides(), options)
                               : at::empty(self.sizes(), options);
    source = converted.copy_(source);
  }
  const bool one_device_at_least = self.is_cuda() || source.is_cuda();
  if (!strided || !one_device_at_least || between_devices || needs_no_kernel(self, source)) {
    at::native::copy_(self, source, non_blocking);
    torch::jit::drop(*stack, 3);
    stack->emplace_back(std::move(self));
    return;
  }
  fallback_(handle, keys, stack);
}

} // namespace vgpu_torch
