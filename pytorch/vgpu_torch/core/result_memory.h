// Device memory for results while the CPU's kernel runs, so that they need not be copied to the device afterwards.
//
// A kernel allocates results and scratch memory alike. Which of its allocations became results is remembered for each
// call (operator, shapes, numbers); when the same call is made again, those come from the device's allocator. A wrong
// guess costs a copy, or device memory until the kernel returns; the values are the same.
#pragma once
#include "operator.h"
#include <c10/core/Device.h>
#include <c10/core/Storage.h>

namespace vgpu_torch {

class ResultMemory {
public:
  static constexpr size_t MIN_NBYTES = 4096; // a smaller result is copied in less time

  // Has the CPU's allocator ask this class first. Once for each process.
  static void init();

  // Until end(), large allocations of this thread are of the call with the arguments `given`.
  ResultMemory(const Operator &op, c10::ArrayRef<c10::IValue> given, c10::Device device);
  ~ResultMemory();
  ResultMemory(const ResultMemory &) = delete;
  ResultMemory &operator=(const ResultMemory &) = delete;

  // The kernel has returned.
  void end();
  // The device's storage that is all of the memory of `result`, a CPU tensor; an empty one: the result must be copied.
  c10::Storage take(const at::Tensor &result);

  // For the allocator: device memory as the CPU addresses it, or an empty pointer.
  c10::DataPtr allocate(size_t nbytes) const;
  // For the allocator: the call's next allocation has this address.
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
