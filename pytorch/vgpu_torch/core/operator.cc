#include "operator.h"
#include "limit.h"
#include "substitute.h"
#include <sstream>

namespace vgpu_torch {

Operator::Operator(const c10::FunctionSchema &schema, Rules rules, const std::string &hidden_writes)
    : name(schema.name() + (schema.overload_name().empty() ? "" : "." + schema.overload_name())),
      n_returns(schema.returns().size()), rules(std::move(rules)) {
  for (const char *makes_quantized : {"aten::quantize_per", "aten::_make_per"})
    quantizes |= name.rfind(makes_quantized, 0) == 0;
  limit = limit_of(name);
  substitute = substitute_of(name);
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

} // namespace vgpu_torch
