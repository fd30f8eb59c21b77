#include "operator.h"
#include "arguments.h"
#include "limit.h"
#include "statistics.h"
#include "substitute.h"
#include <sstream>

namespace vgpu_torch {
namespace {

bool is_mask(const at::Tensor &index) { return index.scalar_type() == at::kBool || index.scalar_type() == at::kByte; }

// `x[mask] = number` is masked_fill_ (canDispatchToMaskedFill of ATen).
bool fills_by_a_mask(const Operator &op, c10::ArrayRef<c10::IValue> values) {
  int64_t n_indices = 0;
  bool filled = false, accumulates = false;
  for (size_t i = 0; i < values.size(); i++) {
    if (values[i].isOptionalTensorList() || values[i].isTensorList())
      for_each_tensor(values[i], [&](const at::Tensor &) { n_indices++; });
    else if (op.arguments[i].name == "values")
      filled = values[i].toTensor().is_cpu() && values[i].toTensor().numel() == 1;
    else if (op.arguments[i].name == "accumulate")
      accumulates = values[i].toBool();
  }
  return filled && !accumulates && n_indices == 1;
}

} // namespace

Operator::Operator(const c10::FunctionSchema &schema, Rules rules, const std::string &hidden_writes)
    : name(schema.name() + (schema.overload_name().empty() ? "" : "." + schema.overload_name())),
      n_returns(schema.returns().size()), rules(std::move(rules)) {
  for (const char *makes_quantized : {"aten::quantize_per", "aten::_make_per"})
    quantizes |= name.rfind(makes_quantized, 0) == 0;
  for (const char *indexes :
       {"aten::index.", "aten::_unsafe_index.", "aten::index_put", "aten::_index_put_impl", "aten::_unsafe_index_put"})
    takes_indices |= name.rfind(indexes, 0) == 0;
  limit = limit_of(name);
  substitute = substitute_of(name);
  cpu_call = statistics_call_of(name);
  std::vector<std::string> hidden;
  std::istringstream words(hidden_writes);
  for (std::string word; words >> word;)
    hidden.push_back(word);
  for (const auto &argument : schema.arguments()) {
    const auto *alias = argument.alias_info();
    const bool annotated = alias && alias->isWrite();
    const bool unannotated = std::find(hidden.begin(), hidden.end(), argument.name()) != hidden.end();
    arguments.push_back(
        {argument.name(), annotated || unannotated, argument.kwarg_only() && annotated, !argument.kwarg_only()});
  }
}

bool Operator::waits_for_values(c10::ArrayRef<c10::IValue> values) const {
  if (!takes_indices)
    return depends_on_values;
  bool waits = false;
  for (const c10::IValue &value : values)
    if (value.isOptionalTensorList() || value.isTensorList())
      for_each_tensor(value, [&](const at::Tensor &index) { waits |= is_mask(index) || index.is_cpu(); });
  return waits && !fills_by_a_mask(*this, values);
}

} // namespace vgpu_torch
