#include "widen.h"
#include "arguments.h"
#include <set>

namespace vgpu_torch {
namespace {

at::ScalarType wide(at::ScalarType dtype) {
  switch (dtype) {
  case at::kHalf:
  case at::kBFloat16:
    return at::kFloat;
  case at::kComplexHalf:
    return at::kComplexFloat;
  case at::kBool:
    return at::kByte;
  default:
    return dtype;
  }
}

// The dtype of a result that CUDA's kernel gives for arguments of dtype `narrow`, where the widened call gave `dtype`.
at::ScalarType narrowed(at::ScalarType dtype, at::ScalarType narrow) {
  const bool half = narrow == at::kHalf || narrow == at::kComplexHalf;
  if (half && dtype == at::kFloat)
    return at::kHalf;
  if (half && dtype == at::kComplexFloat)
    return at::kComplexHalf;
  return dtype == wide(narrow) ? narrow : dtype;
}

} // namespace

bool is_lack_of_narrow(const Operator &op, const std::string &message) {
  static const std::set<std::string> TRUTH_VALUES = {"aten::abs", "aten::abs.out", "aten::abs_", "aten::trace"};
  const auto says = [&](const char *text) { return message.find(text) != std::string::npos; };
  const bool lacks = says("not implemented for") || says("nsupported dtype") || says("support tensors of type") ||
                     says("Expected self to be a floating-point or complex tensor");
  return lacks && (says("Half") || says("BFloat16") || (says("'Bool'") && TRUTH_VALUES.count(op.name)));
}

void run_widened(const c10::OperatorHandle &handle, const Operator &op, c10::DispatchKey key,
                 std::vector<c10::IValue> arguments, torch::jit::Stack &stack) {
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs; // narrow, wide: a tensor given twice is widened once
  at::ScalarType narrow = at::kHalf;
  const auto widen = [&](const at::Tensor &tensor) {
    if (!tensor.defined() || wide(tensor.scalar_type()) == tensor.scalar_type())
      return tensor;
    narrow = tensor.scalar_type();
    for (const auto &pair : pairs)
      if (pair.first.is_same(tensor))
        return pair.second;
    pairs.emplace_back(tensor, tensor.to(wide(narrow)));
    return pairs.back().second;
  };
  const std::vector<c10::IValue> given = arguments;
  for (c10::IValue &value : arguments)
    replace_tensors(value, widen);
  for (size_t i = 0; i < arguments.size(); i++)
    if (arguments[i].isInt() && op.arguments[i].name == "dtype")
      arguments[i] = static_cast<int64_t>(wide(static_cast<at::ScalarType>(arguments[i].toInt())));
  stack.insert(stack.end(), arguments.begin(), arguments.end());
  handle.redispatchBoxed(c10::DispatchKeySet(key), &stack);
  for (size_t i = 0; i < given.size(); i++)
    if (op.arguments[i].writes)
      for_each_tensor(given[i], [&](const at::Tensor &tensor) {
        const at::Tensor result = widen(tensor);
        if (result.is_same(tensor))
          return;
        if (result.sizes() != tensor.sizes())
          tensor.resize_(result.sizes());
        tensor.copy_(result);
      });
  for (size_t i = stack.size() - op.n_returns; i < stack.size(); i++)
    replace_tensors(stack[i], [&](const at::Tensor &tensor) {
      for (const auto &pair : pairs)
        if (pair.second.is_same(tensor))
          return pair.first;
      return tensor.defined() ? tensor.to(narrowed(tensor.scalar_type(), narrow)) : tensor;
    });
}

} // namespace vgpu_torch
