#include "result_memory.h"
#include "arguments.h"
#include "device.h"
#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/hash.h>
#include <unordered_map>

namespace vgpu_torch {
namespace {

constexpr size_t MAX_ALLOCATIONS = 64;  // allocations of one call that are distinguished: bits of a word
constexpr size_t MAX_CALLS = 16 * 1024; // calls that a thread remembers

thread_local ResultMemory *current = nullptr;
thread_local std::unordered_map<uint64_t, uint64_t> results_of_calls;

// What a CPU storage's pointer owns that lies in device memory.
struct Piece {
  c10::Storage device;
};

void delete_piece(void *piece) { delete static_cast<Piece *>(piece); }

// The CPU's allocator as it was, but for allocations that are expected to become results.
class ResultAllocator final : public c10::Allocator {
public:
  explicit ResultAllocator(c10::Allocator *host) : host_(host) {}

  c10::DataPtr allocate(size_t nbytes) override {
    ResultMemory *const call = nbytes < ResultMemory::MIN_NBYTES ? nullptr : current;
    if (!call)
      return host_->allocate(nbytes);
    current = nullptr; // the device's allocator is not part of the kernel
    c10::DataPtr pointer;
    try {
      pointer = call->allocate(nbytes);
    } catch (...) {
      current = call;
      throw;
    }
    current = call;
    if (!pointer)
      pointer = host_->allocate(nbytes);
    call->note(pointer.get());
    return pointer;
  }
  c10::DeleterFnPtr raw_deleter() const override { return host_->raw_deleter(); }
  void copy_data(void *target, const void *source, size_t nbytes) const override {
    host_->copy_data(target, source, nbytes);
  }

private:
  c10::Allocator *host_;
};

void mix(uint64_t &hash, uint64_t value) { hash = c10::hash_combine(hash, value); }

uint64_t hash_of(const Operator &op, c10::ArrayRef<c10::IValue> given) {
  uint64_t hash = reinterpret_cast<uintptr_t>(&op);
  for (const c10::IValue &value : given) {
    for_each_tensor(value, [&](const at::Tensor &tensor) {
      mix(hash, static_cast<uint64_t>(tensor.scalar_type()) << 8 | tensor.dim());
      if (tensor.layout() != c10::kStrided)
        return;
      for (int64_t d = 0; d < tensor.dim(); d++)
        mix(hash, tensor.size(d) << 32 ^ tensor.stride(d));
    });
    if (value.isInt())
      mix(hash, value.toInt());
    else if (value.isBool())
      mix(hash, value.toBool());
    else if (value.isNone())
      mix(hash, 1);
    else if (value.isIntList())
      for (const int64_t number : value.toIntVector())
        mix(hash, number);
    else if (value.isBoolList())
      for (const bool flag : value.toBoolList())
        mix(hash, flag);
  }
  return hash;
}

// Hashing the arguments of small calls would cost more than it saves.
bool has_large(c10::ArrayRef<c10::IValue> given) {
  bool large = false;
  for (const c10::IValue &value : given)
    for_each_tensor(value, [&](const at::Tensor &tensor) {
      large |= tensor.numel() * tensor.itemsize() >= ResultMemory::MIN_NBYTES;
    });
  return large;
}

} // namespace

void ResultMemory::init() { c10::SetCPUAllocator(new ResultAllocator(c10::GetCPUAllocator())); }

ResultMemory::ResultMemory(const Operator &op, c10::ArrayRef<c10::IValue> given, c10::Device device)
    : device_(device), is_active_(device_is_in_place() && has_large(given)) {
  outer_ = current;
  current = is_active_ ? this : nullptr;
  if (!is_active_)
    return;
  call_ = hash_of(op, given);
  const auto known = results_of_calls.find(call_);
  if (known != results_of_calls.end())
    expected_ = known->second;
}

void ResultMemory::end() {
  if (current == this)
    current = nullptr;
}

ResultMemory::~ResultMemory() {
  current = outer_;
  if (!is_active_ || results_ == expected_)
    return;
  if (results_of_calls.size() >= MAX_CALLS)
    results_of_calls.clear();
  results_of_calls[call_] = results_;
}

c10::DataPtr ResultMemory::allocate(size_t nbytes) const {
  const size_t number = allocations_.size();
  if (number >= MAX_ALLOCATIONS || !(expected_ >> number & 1))
    return {};
  const at::Tensor bytes =
      at::empty({static_cast<int64_t>(nbytes)}, at::TensorOptions().dtype(at::kByte).device(device_));
  void *alias = device_host_alias(bytes.data_ptr());
  if (!alias)
    return {};
  return {alias, new Piece{bytes.storage()}, delete_piece, c10::kCPU};
}

c10::Storage ResultMemory::take(const at::Tensor &result) {
  if (!is_active_ || result.is_quantized())
    return {};
  const c10::StorageImpl &host = *result.storage().unsafeGetStorageImpl();
  const bool is_all =
      result.storage_offset() == 0 && result.is_non_overlapping_and_dense() && result.nbytes() == host.nbytes();
  // Nothing else may write to this memory: neither a kernel that keeps its result, nor another result.
  if (!is_all || result.storage().use_count() != 1)
    return {};
  // The last such allocation: memory of an earlier one may have been freed and reused.
  const auto at = std::find(allocations_.rbegin(), allocations_.rend(), host.data());
  if (at == allocations_.rend())
    return {};
  const size_t number = allocations_.rend() - at - 1;
  if (number >= MAX_ALLOCATIONS)
    return {};
  results_ |= uint64_t{1} << number;
  if (host.data_ptr().get_deleter() != delete_piece)
    return {};
  return std::move(static_cast<Piece *>(host.data_ptr().get_context())->device);
}

} // namespace vgpu_torch
