// Facts about one operator, prepared before calls: from its schema, and the rules of CUDA's kernel.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace vgpu_torch {

// How CUDA's kernel checks that its tensors are on one device.
enum class DeviceRule : int {
  SAME = 0,        // the generated wrapper checks every tensor; its error names the argument
  ITERATOR = 1,    // TensorIterator: as SAME, but CPU scalars are allowed; its error names the two devices
  INDICES = 2,     // indexing: indices may be on the CPU, everything else is on one device
  CONVOLUTION = 3, // the tensor types of input, weight and bias are compared, which include the device
  MASKED_FILL = 4, // self and mask are on one device, the value is a scalar on any device
  NONE = 5,        // devices may differ
};

struct Rules {
  DeviceRule device = DeviceRule::NONE;
  std::string method;          // the generated wrapper's name in errors
  std::string kernel;          // the CUDA kernel's name in errors about dtypes
  uint64_t refused_dtypes = 0; // one bit per c10::ScalarType of the first tensor
  std::string alert;           // a nondeterministic kernel's name in errors; empty: the kernel is deterministic
  std::string alert_when;      // when it is nondeterministic: see NONDETERMINISTIC in tables.py
};

struct Argument {
  std::string name;
  bool writes = false;
  bool is_out = false;        // an out= argument
  bool is_positional = false; // the generated wrapper checks only these, and out= arguments
};

struct Operator;
// Throws if CUDA's kernel refuses the arguments (limit.h).
using Limit = void (*)(const Operator &op, c10::ArrayRef<c10::IValue> values);
// The result for these CPU arguments, or nothing if the operator's CPU kernel can compute it (substitute.h).
using Substitute = std::optional<at::Tensor> (*)(c10::ArrayRef<c10::IValue> values);

// Calls the operator's CPU kernel with the arguments on the stack, and leaves CUDA's results there (statistics.h).
using CpuCall = void (*)(const Operator &op, const c10::OperatorHandle &handle, c10::DispatchKey key,
                         torch::jit::Stack *stack);

struct Operator {
  Operator(const c10::FunctionSchema &schema, Rules rules, const std::string &hidden_writes);

  // Whether a GPU's operator waits for the device, because its results' shapes or a returned number depend on values.
  bool waits_for_values(c10::ArrayRef<c10::IValue> values) const;

  std::string name; // namespace::name.overload
  std::vector<Argument> arguments;
  size_t n_returns;
  bool is_random_by_default = false; // draws from the default generator: there is no generator argument
  bool depends_on_values = false;    // by torch's tag: shapes of results or a returned number depend on values
  bool takes_indices = false;        // an indexing operator, which depends only on the values of masks
  bool quantizes = false;            // the quantiser of its result depends on values
  Limit limit = nullptr;
  Substitute substitute = nullptr;
  CpuCall cpu_call = nullptr;
  Rules rules;
};

} // namespace vgpu_torch
