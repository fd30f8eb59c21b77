// CPU tensors that stand for the device tensors of one operator call.
//
// There is one mirror per storage, not per tensor: arguments that share memory also share it on the CPU.
#pragma once
#include "device.h"
#include "pointer_index.h"
#include "result_memory.h"
#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <vector>

namespace vgpu_torch {

class Mirrors {
public:
  enum class Contents {
    CURRENT,  // the device's contents once the stream's work so far is done
    IN_PLACE, // the device's memory itself, whose contents are not read yet
    ZEROS,    // separate memory filled with zeros: only the results' shapes are used
    ONES,
  };
  Mirrors(c10::Device device, const DeviceStream &stream, Contents contents = Contents::CURRENT)
      : device_(device), stream_(stream), contents_(contents) {}

  // First pass: reserve the span of memory that the tensor covers.
  void reserve(const at::Tensor &tensor, bool writes);
  // Between the passes: make every reserved span available on the CPU. False: IN_PLACE, but a span is not mapped.
  bool fetch();
  // Second pass: the CPU tensor that stands for `tensor`; a tensor of another device is returned unchanged.
  at::Tensor host(const at::Tensor &tensor, bool writes);

  // After the operator: copy what it wrote to the device. For ZEROS and ONES only shapes are transferred.
  void write_back();
  // The device tensor for a result: an argument, a view of an argument's memory, or a new tensor. The result may
  // already be in device memory (`memory`).
  at::Tensor device(const at::Tensor &result, ResultMemory *memory = nullptr);
  // Whether a device tensor shares the storage of an argument.
  bool has_memory_of(const at::Tensor &tensor) const;
  // The spans in place: the device's address, and the address at which this process maps it.
  std::vector<std::pair<const void *, const void *>> memory() const;
  // Wait until the copies of write_back() and device() have read their source.
  void finish();

private:
  struct Span {
    c10::Storage device, host;
    size_t begin = SIZE_MAX, end = 0; // range of bytes in the device's storage
    const void *base = nullptr;       // address of the host's storage when fetch() allocated it
    bool in_place = false;            // the host's storage is the device's memory itself
    bool written = false;
  };
  struct Pair {
    at::Tensor device, host;
    size_t span; // index in spans_; SPARSE: the tensor has no storage
    bool written;
  };
  static constexpr size_t SPARSE = SIZE_MAX;

  bool is_blank() const { return contents_ == Contents::ZEROS || contents_ == Contents::ONES; }

  Span &span_of(const at::Tensor &tensor);
  static bool map(Span &span);
  at::Tensor strided_host(const at::Tensor &tensor, const Span &span) const;
  void replace_sparse(const Pair &pair) const;
  void resize_device(const Pair &pair, Span &span);
  bool was_resized(const Pair &pair, const Span &span) const;
  void send(const at::Tensor &host, const at::Tensor &device);

  c10::Device device_;
  const DeviceStream &stream_;
  Contents contents_;
  c10::SmallVector<Span, 4> spans_;
  c10::SmallVector<Pair, 4> pairs_;
  std::vector<at::Tensor> others_; // arguments on other devices; a result may be one of them
  PointerIndex span_index_;        // indices in spans_, by storage
  PointerIndex pair_index_;        // indices in pairs_, by device tensor
  bool copies_pending_ = false;
};

// Copy the bits for conjugation, negation, and a tensor that wraps a Python number.
void copy_bits(const at::Tensor &from, const at::Tensor &to);

// A quantised tensor with the shape and quantiser of `like`, over a storage of another device.
at::Tensor quantized_over(c10::Storage storage, c10::Device device, const at::Tensor &like, int64_t offset);

// Give `to` the quantiser of `from`, which an operator may have changed.
void quantized_set_quantizer(const at::Tensor &from, const at::Tensor &to);

// A tensor of a sparse layout, which consists of dense tensors, rebuilt on another device.
at::Tensor sparse_to(const at::Tensor &tensor, c10::Device device);

} // namespace vgpu_torch
