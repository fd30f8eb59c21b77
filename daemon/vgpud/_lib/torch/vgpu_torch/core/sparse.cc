// Sparse tensors: rebuilt from their dense parts.
#include "mirror.h"
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

namespace vgpu_torch {
namespace {

at::Tensor dense_to(const at::Tensor &tensor, c10::Device device) {
  const auto options = tensor.options().device(device);
  at::Tensor target = tensor.is_non_overlapping_and_dense()
                          ? at::empty_strided(tensor.sizes(), tensor.strides(), options)
                          : at::empty(tensor.sizes(), options);
  return target.copy_(tensor);
}

} // namespace

at::Tensor sparse_to(const at::Tensor &tensor, c10::Device device) {
  const auto options = tensor.options().device(device);
  switch (tensor.layout()) {
  case c10::kSparse: {
    at::Tensor target = at::_sparse_coo_tensor_with_dims_and_tensors(
        tensor.sparse_dim(), tensor.dense_dim(), tensor.sizes(), dense_to(tensor._indices(), device),
        dense_to(tensor._values(), device), options);
    return target._coalesced_(tensor.is_coalesced());
  }
  case c10::kSparseCsr:
  case c10::kSparseBsr:
    return at::_sparse_compressed_tensor_unsafe(dense_to(tensor.crow_indices(), device),
                                                dense_to(tensor.col_indices(), device),
                                                dense_to(tensor.values(), device), tensor.sizes(), options);
  case c10::kSparseCsc:
  case c10::kSparseBsc:
    return at::_sparse_compressed_tensor_unsafe(dense_to(tensor.ccol_indices(), device),
                                                dense_to(tensor.row_indices(), device),
                                                dense_to(tensor.values(), device), tensor.sizes(), options);
  default:
    TORCH_CHECK_NOT_IMPLEMENTED(false, "vgpu: tensors of layout ", tensor.layout(), " are not simulated");
  }
}

} // namespace vgpu_torch
