// Device memory for results while the CPU's kernel runs, so that they need not be copied to the device afterwards.
//
// A kernel allocates results and scratch memory with the same allocator. For each call (operator, shapes, numbers) this
// class remembers which allocations became results; when the same call is made again, the device's allocator provides
// those. A wrong guess costs a copy, or device memory until the kernel returns; the values are the same.
#pragma once
#include "operator.h"
#include <c10/core/Device.h>
#include <c10/core/Storage.h>

namespace vgpu_torch {

class ResultMemory {
public:
  static constexpr size_t MIN_NBYTES = 4096; // copying a smaller result takes less time

  // Installs a CPU allocator that asks this class first. Must be called once per process.
  static void init();

  // Until end(), this thread's large allocations belong to the call with the arguments `given`.
  ResultMemory(const Operator &op, c10::ArrayRef<c10::IValue> given, c10::Device device);
  ~ResultMemory();
  ResultMemory(const ResultMemory &) = delete;
  ResultMemory &operator=(const ResultMemory &) = delete;

  // Must be called when the kernel has returned.
  void end();
  // The device storage that holds the CPU tensor `result` and nothing else. Empty: the result must be copied.
  c10::Storage take(const at::Tensor &result);

  // For the allocator: device memory by its address in this process, or an empty pointer.
  c10::DataPtr allocate(size_t nbytes) const;
  // For the allocator: records the address of the call's next allocation.
  void note(const void *data) { allocations_.push_back(data); }

private:
  c10::Device device_;
  bool is_active_;
  uint64_t call_ = 0;
  uint64_t expected_ = 0, results_ = 0; // bit N: the call's allocation N is a result
  std::vector<const void *> allocations_;
  ResultMemory *outer_ = nullptr;
};

} // namespace vgpu_torch
