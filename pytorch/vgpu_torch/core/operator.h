// Facts about one operator that are prepared before calls: its schema, and the rules of CUDA's own kernel.
#pragma once
#include <ATen/core/Tensor.h>
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
  SAME = 0,        // the generated wrapper: every tensor, and it names the argument
  ITERATOR = 1,    // TensorIterator: as above, but CPU scalars are allowed; it names the two devices
  INDICES = 2,     // indexing: indices may be on the CPU, everything else is on one device
  CONVOLUTION = 3, // the types of input, weight and bias are compared, which name the device
  MASKED_FILL = 4, // self and mask are on one device, the value is a scalar of any
  NONE = 5,        // devices may differ
};

struct Rules {
  DeviceRule device = DeviceRule::NONE;
  std::string method;          // what the generated wrapper calls itself in errors
  std::string kernel;          // what CUDA's kernel calls itself in errors about dtypes
  uint64_t refused_dtypes = 0; // bit per c10::ScalarType of the first tensor
  std::string alert;           // what a nondeterministic kernel calls itself; empty: it is deterministic
  std::string alert_when;      // empty: always; "floating"; an argument that is given and not 0; "argument=number"
};

struct Argument {
  std::string name;
  bool writes = false;
  bool is_out = false;        // an out= argument
  bool is_positional = false; // the generated wrapper checks no other
};

struct Operator;
// Throws what CUDA's kernel refuses (limit.h).
using Limit = void (*)(const Operator &op, c10::ArrayRef<c10::IValue> values);
// The result for these arguments on the CPU; nothing where the CPU's own kernel computes it (substitute.h).
using Substitute = std::optional<at::Tensor> (*)(c10::ArrayRef<c10::IValue> values);

struct Operator {
  Operator(const c10::FunctionSchema &schema, Rules rules, const std::string &hidden_writes);

  // Whether a GPU's kernel waits for values: for its results' shapes, or a number that it returns.
  bool waits_for_values(c10::ArrayRef<c10::IValue> values) const;

  std::string name; // namespace::name.overload
  std::vector<Argument> arguments;
  size_t n_returns;
  bool is_random_by_default = false; // draws from the default generator, and takes none
  bool depends_on_values = false;    // says torch's tag: its results' shapes, or a number that it returns
  bool takes_indices = false;        // an indexing operator: it depends on the values of masks alone
  bool quantizes = false;            // its result has a quantiser, which depends on values
  Limit limit = nullptr;
  Substitute substitute = nullptr;
  Rules rules;
};

} // namespace vgpu_torch
