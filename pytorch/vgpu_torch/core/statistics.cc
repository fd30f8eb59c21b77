#include "statistics.h"
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

namespace vgpu_torch {
namespace {

using Names = std::initializer_list<const char *>;

void call_kernel(const c10::OperatorHandle &handle, c10::DispatchKey key, torch::jit::Stack *stack) {
  handle.redispatchBoxed(c10::DispatchKeySet(key), stack);
}

// The argument `name` in `values`; nullptr if the operator has none of that name, or it is not given.
c10::IValue *find(const Operator &op, c10::IValue *values, const std::string &name) {
  for (size_t i = 0; i < op.arguments.size(); i++)
    if (op.arguments[i].name == name)
      return values[i].isNone() || (values[i].isTensor() && !values[i].toTensor().defined()) ? nullptr : &values[i];
  return nullptr;
}

at::Tensor tensor(const Operator &op, c10::IValue *values, const std::string &name) {
  const c10::IValue *value = find(op, values, name);
  return value ? value->toTensor() : at::Tensor();
}

// The arguments, which are the last values on the stack.
c10::IValue *arguments_on(const Operator &op, torch::jit::Stack *stack) {
  return stack->data() + stack->size() - op.arguments.size();
}

// Whether the CPU's kernel computes statistics in half precision: it does if no parameter is in single precision.
bool is_half(const Operator &op, c10::IValue *values, Names parameters) {
  if (!at::isReducedFloatingType(tensor(op, values, "input").scalar_type()))
    return false;
  for (const char *name : parameters) {
    const at::Tensor parameter = tensor(op, values, name);
    if (parameter.defined() && parameter.scalar_type() == at::kFloat)
      return false;
  }
  return true;
}

void convert(const Operator &op, c10::IValue *values, Names names, at::ScalarType dtype) {
  for (const char *name : names)
    if (c10::IValue *value = find(op, values, name))
      *value = value->toTensor().to(dtype);
}

// The kernel computes in single precision, and returns statistics of the parameters' dtype.
void layer_norm(const Operator &op, const c10::OperatorHandle &handle, c10::DispatchKey key, torch::jit::Stack *stack) {
  c10::IValue *values = arguments_on(op, stack);
  if (is_half(op, values, {"weight", "bias"})) {
    convert(op, values, {"weight", "bias"}, at::kFloat);
    if (!find(op, values, "weight"))
      values[2] = at::ones(values[1].toIntVector(), at::kFloat);
  }
  call_kernel(handle, key, stack);
}

// CUDA's kernel sums in single precision, the CPU's in the input's, with errors that grow with the number of rows.
void layer_norm_backward(const Operator &op, const c10::OperatorHandle &handle, c10::DispatchKey key,
                         torch::jit::Stack *stack) {
  c10::IValue *values = arguments_on(op, stack);
  const at::ScalarType dtype = tensor(op, values, "input").scalar_type();
  if (!at::isReducedFloatingType(dtype))
    return call_kernel(handle, key, stack);
  const at::Tensor weight = tensor(op, values, "weight");
  const at::ScalarType dtypes[] = {dtype, weight.defined() ? weight.scalar_type() : dtype};
  convert(op, values, {"grad_out", "input", "mean", "rstd", "weight", "bias"}, at::kFloat);
  call_kernel(handle, key, stack);
  for (size_t i = 0; i < op.n_returns; i++)
    if (c10::IValue &result = (*stack)[stack->size() - op.n_returns + i]; result.toTensor().defined())
      result = result.toTensor().to(dtypes[i > 0]);
}

// Mean and variance of each channel. The kernel gives them in single precision if its parameters are.
std::tuple<at::Tensor, at::Tensor> channel_statistics(const at::Tensor &input) {
  const at::Tensor mean = at::zeros({input.size(1)}, at::kFloat), variance = at::ones({input.size(1)}, at::kFloat);
  return at::batch_norm_update_stats(input, mean, variance, 0);
}

// Mean and reciprocal standard deviation of each channel, in single precision.
std::tuple<at::Tensor, at::Tensor> single_statistics(const at::Tensor &input, double epsilon) {
  const auto [mean, variance] = channel_statistics(input);
  return {mean, (variance + epsilon).rsqrt()};
}

void batch_norm_update_stats(const Operator &op, const c10::OperatorHandle &handle, c10::DispatchKey key,
                             torch::jit::Stack *stack) {
  c10::IValue *values = arguments_on(op, stack);
  const bool half = is_half(op, values, {"running_mean", "running_var"});
  const at::Tensor input = tensor(op, values, "input");
  call_kernel(handle, key, stack);
  if (half)
    std::tie((*stack)[stack->size() - 2], (*stack)[stack->size() - 1]) = channel_statistics(input);
}

void batch_norm(const Operator &op, const c10::OperatorHandle &handle, c10::DispatchKey key, torch::jit::Stack *stack) {
  c10::IValue *values = arguments_on(op, stack);
  const bool half = is_half(op, values, {"weight", "bias", "running_mean", "running_var"});
  const c10::IValue *training = find(op, values, "training");
  const bool is_training = !training || training->toBool();
  if (is_training && !half)
    return call_kernel(handle, key, stack);
  const at::Tensor input = tensor(op, values, "input");
  const double epsilon = find(op, values, "eps")->toDouble();
  const at::Tensor running_mean = tensor(op, values, "running_mean"), running_var = tensor(op, values, "running_var");
  const bool has_running_mean = running_mean.defined(); // in CUDA's error
  TORCH_CHECK(is_training || has_running_mean);
  c10::IValue *const outs[] = {find(op, values, "save_mean"), find(op, values, "save_invstd")};
  at::Tensor given[2];
  for (int i = 0; i < 2; i++)
    if (outs[i]) {
      given[i] = outs[i]->toTensor();
      *outs[i] = at::empty({half ? input.size(1) : 0}, half ? input.scalar_type() : given[i].scalar_type());
    }
  call_kernel(handle, key, stack);
  const at::ScalarType dtype = input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto [mean, invstd] = is_training ? single_statistics(input, epsilon)
                                          : std::tuple(running_mean.to(dtype, /*non_blocking=*/false, /*copy=*/true),
                                                       (running_var.to(dtype) + epsilon).rsqrt());
  const at::Tensor *statistics[] = {&mean, &invstd};
  for (int i = 0; i < 2; i++) {
    if (given[i].defined())
      given[i].resize_(statistics[i]->sizes()).copy_(*statistics[i]);
    (*stack)[stack->size() - op.n_returns + 1 + i] = given[i].defined() ? given[i] : *statistics[i];
  }
}

// The CPU's kernel computes with its own statistics, which are rounded earlier than those that batch_norm returns: with
// its own statistics the kernel gives the CPU's gradient. They are computed anew if the given ones are those of the
// input.
void batch_norm_backward(const Operator &op, const c10::OperatorHandle &handle, c10::DispatchKey key,
                         torch::jit::Stack *stack) {
  c10::IValue *values = arguments_on(op, stack);
  if (is_half(op, values, {"weight", "running_mean", "running_var"})) {
    const at::Tensor input = tensor(op, values, "input");
    const double epsilon = find(op, values, "eps")->toDouble();
    c10::IValue *const mean = find(op, values, "save_mean");
    const bool is_new = find(op, values, "update") != nullptr; // aten::batch_norm_backward
    c10::IValue *const invstd = find(op, values, is_new ? "save_var" : "save_invstd");
    const c10::IValue *const training = find(op, values, is_new ? "update" : "train");
    if (training->toBool() && mean && invstd) {
      const auto [input_mean, input_invstd] = single_statistics(input, epsilon);
      if (input_mean.equal(mean->toTensor()) && input_invstd.equal(invstd->toTensor()))
        std::tie(std::ignore, *mean, *invstd) = at::native_batch_norm(input, {}, {}, {}, {}, true, 0, epsilon);
    }
    convert(op, values, {"save_mean", "save_invstd", "save_var"}, input.scalar_type());
  }
  call_kernel(handle, key, stack);
}

} // namespace

CpuCall statistics_call_of(const std::string &name) {
  const std::string base = name.substr(0, name.find('.'));
  if (base == "aten::native_layer_norm")
    return layer_norm;
  if (base == "aten::native_layer_norm_backward")
    return layer_norm_backward;
  if (base == "aten::batch_norm_update_stats")
    return batch_norm_update_stats;
  if (base == "aten::native_batch_norm" || base == "aten::_native_batch_norm_legit" ||
      base == "aten::_batch_norm_with_update")
    return batch_norm;
  if (base == "aten::native_batch_norm_backward" || base == "aten::batch_norm_backward")
    return batch_norm_backward;
  return nullptr;
}

} // namespace vgpu_torch
