// CPU tensors that stand for the device tensors of one operator call.
//
// Mirrors are made per storage, not per tensor: arguments that share memory share it on the CPU, too.
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
    CURRENT,  // what the device has when the stream has come this far
    IN_PLACE, // the device's memory itself, whatever it will hold
    ZEROS,    // memory of its own: only the results' shapes are wanted
    ONES,
  };
  Mirrors(c10::Device device, const DeviceStream &stream, Contents contents = Contents::CURRENT)
      : device_(device), stream_(stream), contents_(contents) {}

  // First pass: reserve the span of memory that the tensor covers.
  void reserve(const at::Tensor &tensor, bool writes);
  // Between the passes: bring every reserved span to the CPU. False: it is wanted in place, and not mapped here.
  bool fetch();
  // Second pass: the CPU tensor that stands for `tensor`; a tensor of another device is returned unchanged.
  at::Tensor host(const at::Tensor &tensor, bool writes);

  // After the operator: bring what it wrote to the device. Shapes alone where the contents are not the device's.
  void write_back();
  // The device tensor for a result: an argument, a view of an argument's memory, or a new tensor, whose memory may be
  // the device's already.
  at::Tensor device(const at::Tensor &result, ResultMemory *memory = nullptr);
  // Whether a tensor of the device lies in an argument's memory.
  bool has_memory_of(const at::Tensor &tensor) const;
  // Spans in place: the device's address, and where this process has it.
  std::vector<std::pair<const void *, const void *>> memory() const;
  // Wait until the copies of write_back() and device() have read their source.
  void finish();

private:
  struct Span {
    c10::Storage device, host;
    size_t begin = SIZE_MAX, end = 0; // bytes of the device's storage
    const void *base = nullptr;       // address of the host's storage when fetch() allocated it
    bool in_place = false;            // the host's storage is the device's memory itself
    bool written = false;
  };
  struct Pair {
    at::Tensor device, host;
    size_t span; // SPARSE: no memory of its own
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
  std::vector<at::Tensor> others_; // arguments of other devices: a result may be one of them
  PointerIndex span_index_;        // of the storages of spans_
  PointerIndex pair_index_;        // of the device tensors of pairs_
  bool copies_pending_ = false;
};

// Conjugation, negation, and whether it stands for a number of Python's.
void copy_bits(const at::Tensor &from, const at::Tensor &to);

// A quantised tensor like `like`, with its quantiser, over memory of another device.
at::Tensor quantized_over(c10::Storage storage, c10::Device device, const at::Tensor &like, int64_t offset);

// Give `to` the quantiser of `from`, which an operator may have changed.
void quantized_set_quantizer(const at::Tensor &from, const at::Tensor &to);

// A tensor without memory of its own (sparse layouts), rebuilt from its parts on another device.
at::Tensor sparse_to(const at::Tensor &tensor, c10::Device device);

} // namespace vgpu_torch
