#include "mirror.h"
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/fill.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/CPUAllocator.h>

namespace vgpu_torch {
namespace {

constexpr size_t SPAN_ALIGNMENT_NBYTES = 64; // of a mirror's first byte, so that vectorised kernels see aligned memory

std::pair<size_t, size_t> span_nbytes(const at::Tensor &tensor) {
  const size_t item = tensor.itemsize();
  const size_t begin = tensor.storage_offset() * item;
  if (tensor.numel() == 0)
    return {begin, begin};
  int64_t last = 0;
  for (int64_t d = 0; d < tensor.dim(); d++)
    last += (tensor.size(d) - 1) * tensor.stride(d);
  return {begin, begin + (last + 1) * item};
}

void fill_with_ones(const c10::Storage &storage, const at::Tensor &like) {
  const auto numel = static_cast<int64_t>(storage.nbytes() / like.itemsize());
  at::from_blob(storage.mutable_data(), {numel}, like.options().device(c10::kCPU)).fill_(1);
}

at::Tensor over_storage(c10::Storage storage, c10::Device device, const at::Tensor &like, int64_t offset) {
  if (like.is_quantized())
    return quantized_over(std::move(storage), device, like, offset);
  const auto key = device.is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU;
  at::Tensor tensor =
      at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), like.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), offset);
  copy_bits(like, tensor);
  return tensor;
}

} // namespace

void copy_bits(const at::Tensor &from, const at::Tensor &to) {
  to._set_conj(from.is_conj());
  to._set_neg(from.is_neg());
  if (from.unsafeGetTensorImpl()->is_wrapped_number())
    to.unsafeGetTensorImpl()->set_wrapped_number(true);
}

Mirrors::Span &Mirrors::span_of(const at::Tensor &tensor) {
  const auto [number, is_new] = span_index_.add(tensor.storage().unsafeGetStorageImpl());
  if (is_new)
    spans_.push_back({tensor.storage()});
  return spans_[number];
}

void Mirrors::reserve(const at::Tensor &tensor, bool writes) {
  if (!tensor.defined() || !tensor.is_cuda() || tensor.layout() != c10::kStrided)
    return;
  Span &span = span_of(tensor);
  const auto [begin, end] = span_nbytes(tensor);
  if (end > begin) {
    span.begin = std::min(span.begin, begin & ~(SPAN_ALIGNMENT_NBYTES - 1));
    span.end = std::max(span.end, end);
  }
  span.written |= writes;
}

bool Mirrors::fetch() {
  for (Span &span : spans_) {
    if (span.end == 0)
      span.begin = 0;
    const size_t nbytes = span.end - span.begin;
    const bool may_map = contents_ == Contents::IN_PLACE || (contents_ == Contents::CURRENT && device_is_in_place());
    if (nbytes && may_map && map(span))
      continue;
    if (nbytes && contents_ == Contents::IN_PLACE)
      return false;
    span.host = c10::Storage(c10::Storage::use_byte_size_t(), nbytes, c10::GetCPUAllocator(), true);
    if (nbytes && is_blank())
      memset(span.host.mutable_data(), 0, nbytes);
    else if (nbytes)
      stream_.to_host(span.host.mutable_data(), static_cast<const char *>(span.device.data()) + span.begin, nbytes);
    span.base = span.host.data();
  }
  // Wait even if nothing is read: a copy that is still under way may use the memory that is now a result's.
  if (contents_ == Contents::CURRENT)
    stream_.synchronize();
  return true;
}

// Let the host's storage be the device's memory: the whole of it, so that offsets agree. It is resizable: an out=
// argument may get new memory, which write_back() notices. False where the memory is not mapped in this process.
bool Mirrors::map(Span &span) {
  void *alias = device_host_alias(span.device.data());
  if (!alias)
    return false;
  span.begin = 0;
  span.end = span.device.nbytes();
  span.host = c10::Storage(c10::Storage::use_byte_size_t(), span.end, c10::DataPtr(alias, c10::kCPU),
                           c10::GetCPUAllocator(), true);
  span.base = alias;
  span.in_place = true;
  return true;
}

at::Tensor Mirrors::host(const at::Tensor &tensor, bool writes) {
  if (!tensor.defined())
    return tensor;
  if (!tensor.is_cuda()) {
    others_.push_back(tensor);
    return tensor;
  }
  const auto [number, is_new] = pair_index_.add(tensor.unsafeGetTensorImpl());
  if (!is_new) {
    pairs_[number].written |= writes;
    return pairs_[number].host;
  }
  if (tensor.layout() != c10::kStrided) {
    pairs_.push_back({tensor, sparse_to(tensor, c10::kCPU), SPARSE, writes});
  } else {
    const size_t span = span_index_.find(tensor.storage().unsafeGetStorageImpl()).value();
    pairs_.push_back({tensor, strided_host(tensor, spans_[span]), span, writes});
    if (contents_ == Contents::ONES)
      fill_with_ones(spans_[span].host, tensor);
  }
  return pairs_.back().host;
}

at::Tensor Mirrors::strided_host(const at::Tensor &tensor, const Span &span) const {
  const int64_t offset =
      tensor.numel() ? tensor.storage_offset() - static_cast<int64_t>(span.begin / tensor.itemsize()) : 0;
  return over_storage(span.host, c10::kCPU, tensor, offset);
}

void Mirrors::write_back() {
  for (const Pair &pair : pairs_) {
    if (!pair.written)
      continue;
    if (pair.span == SPARSE)
      replace_sparse(pair);
    else if (was_resized(pair, spans_[pair.span]))
      resize_device(pair, spans_[pair.span]);
    if (pair.host.is_quantized())
      quantized_set_quantizer(pair.host, pair.device);
  }
  for (const Span &span : spans_) {
    if (!span.written || span.in_place || is_blank() || span.end <= span.begin)
      continue;
    stream_.to_device(static_cast<char *>(span.device.mutable_data()) + span.begin, span.base, span.end - span.begin);
    copies_pending_ = true;
  }
}

bool Mirrors::was_resized(const Pair &pair, const Span &span) const {
  const bool moved =
      pair.host.storage().unsafeGetStorageImpl() != span.host.unsafeGetStorageImpl() || span.host.data() != span.base;
  return moved || pair.host.sizes() != pair.device.sizes() || pair.host.strides() != pair.device.strides();
}

void Mirrors::resize_device(const Pair &pair, Span &span) {
  const at::Tensor host = pair.host.is_non_overlapping_and_dense() ? pair.host : pair.host.contiguous();
  if (pair.device.sizes() != host.sizes())
    pair.device.resize_(host.sizes());
  if (pair.device.strides() != host.strides())
    pair.device.unsafeGetTensorImpl()->set_sizes_and_strides(host.sizes(), host.strides(),
                                                             pair.device.storage_offset());
  send(host, pair.device);
  span.written = false; // the span's memory on the CPU does not hold the tensor's new contents
}

void Mirrors::replace_sparse(const Pair &pair) const {
  const at::Tensor device = sparse_to(pair.host, device_);
  if (device.layout() == c10::kSparse)
    pair.device.sparse_resize_and_clear_(device.sizes(), device.sparse_dim(), device.dense_dim());
  pair.device.unsafeGetTensorImpl()->shallow_copy_from(device.getIntrusivePtr());
}

at::Tensor Mirrors::device(const at::Tensor &result, ResultMemory *memory) {
  if (!result.defined() || !result.device().is_cpu())
    return result;
  for (const Pair &pair : pairs_)
    if (pair.host.is_same(result))
      return pair.device;
  for (const at::Tensor &other : others_)
    if (other.is_same(result))
      return result;
  if (result.layout() != c10::kStrided)
    return sparse_to(result, device_);
  for (const Span &span : spans_)
    if (span.base && span.host.unsafeGetStorageImpl() == result.storage().unsafeGetStorageImpl() &&
        span.host.data() == span.base)
      return over_storage(span.device, device_, result, result.storage_offset() + span.begin / result.itemsize());
  if (memory)
    if (c10::Storage storage = memory->take(result))
      return over_storage(std::move(storage), device_, result, 0);
  const at::Tensor host = result.is_non_overlapping_and_dense() ? result : result.contiguous();
  const auto dtype = c10::toUnderlying(host.scalar_type()); // what a quantised tensor's memory holds
  at::Tensor device = at::empty_strided(host.sizes(), host.strides(), at::TensorOptions().dtype(dtype).device(device_));
  if (host.is_quantized())
    device = quantized_over(device.storage(), device_, host, 0);
  send(host, device);
  copy_bits(result, device);
  return device;
}

bool Mirrors::has_memory_of(const at::Tensor &tensor) const {
  return span_index_.find(tensor.storage().unsafeGetStorageImpl()).has_value();
}

std::vector<std::pair<const void *, const void *>> Mirrors::memory() const {
  std::vector<std::pair<const void *, const void *>> found;
  for (const Span &span : spans_)
    if (span.in_place)
      found.emplace_back(span.device.data(), span.base);
  return found;
}

void Mirrors::send(const at::Tensor &host, const at::Tensor &device) {
  const size_t nbytes = host.numel() * host.itemsize();
  if (!nbytes || is_blank())
    return;
  void *alias = device_is_in_place() ? device_host_alias(device.data_ptr()) : nullptr;
  if (alias) {
    memcpy(alias, host.const_data_ptr(), nbytes);
    return;
  }
  stream_.to_device(device.mutable_data_ptr(), host.const_data_ptr(), nbytes);
  copies_pending_ = true;
}

void Mirrors::finish() {
  if (copies_pending_)
    stream_.synchronize();
  copies_pending_ = false;
}

} // namespace vgpu_torch
