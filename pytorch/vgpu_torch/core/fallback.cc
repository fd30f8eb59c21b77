#include "fallback.h"
#include "arguments.h"
#include "assertion.h"
#include "check.h"
#include "cpu_kernel.h"
#include "mirror.h"
#include "random.h"
#include "record.h"
#include "stream_work.h"
#include "trace.h"
#include <c10/core/DeviceGuard.h>

namespace vgpu_torch {
namespace {

// The device of a call: that of its first CUDA tensor, else that of a device argument, else the current one.
c10::Device device_of(c10::ArrayRef<c10::IValue> values) {
  std::optional<c10::Device> found;
  for (const c10::IValue &value : values)
    for_each_tensor(value, [&](const at::Tensor &tensor) {
      if (!found && tensor.is_cuda())
        found = tensor.device();
    });
  for (const c10::IValue &value : values)
    if (!found && value.isDevice() && value.toDevice().is_cuda())
      found = value.toDevice();
  return found && found->has_index() ? *found : device_current();
}

} // namespace

void Fallback::operator()(const c10::OperatorHandle &handle, c10::DispatchKeySet, torch::jit::Stack *stack) {
  const size_t n = op_.arguments.size();
  const c10::ArrayRef<c10::IValue> given(stack->data() + stack->size() - n, n);
  check_call(op_, given);
  trace_call(op_, given);
  const c10::Device device = device_of(given);
  const c10::DeviceGuard guard(device);
  const DeviceStream stream(device);
  const bool waits = op_.waits_for_values(given);
  if (waits)
    device_note_synchronization();
  switch (stream_work_order(stream)) {
  case Order::NOW:
    break;
  case Order::LATER:
    if (!waits && record_is_possible(op_, given) && record_unless_refused(handle, stream, stack))
      return;
    break;
  case Order::CAPTURED:
    if (waits)
      stream.synchronize(); // as on a GPU this returns CUDA's error and invalidates the capture
    TORCH_CHECK_NOT_IMPLEMENTED(record_is_possible(op_, given), "vgpu: ", op_.name,
                                " with these tensors is not simulated in a CUDA graph (docs/pytorch.md)");
    record(op_, handle, stream, stack);
    return;
  }
  if (!assertion_is_on_device())
    return run_now(handle, stream, stack);
  const torch::jit::Stack before = *stack;
  try {
    run_now(handle, stream, stack);
  } catch (const c10::Error &error) {
    if (!assertion_is_of_device(error.what_without_backtrace()))
      throw;
    assertion_launch(stream, op_.name, error.what_without_backtrace());
    *stack = before;
    record_results(op_, handle, stream, stack);
  }
}

// False: the kernel refuses the arguments that recording passes to it; the call's own arguments are still on the stack.
bool Fallback::record_unless_refused(const c10::OperatorHandle &handle, const DeviceStream &stream,
                                     torch::jit::Stack *stack) const {
  const torch::jit::Stack before = *stack;
  try {
    record(op_, handle, stream, stack);
    return true;
  } catch (const std::exception &) {
    *stack = before;
    return false;
  }
}

void Fallback::run_now(const c10::OperatorHandle &handle, const DeviceStream &stream, torch::jit::Stack *stack) const {
  const size_t n = op_.arguments.size();
  const c10::ArrayRef<c10::IValue> given(stack->data() + stack->size() - n, n);
  const c10::DispatchKey key = cpu_key(given);
  const c10::Device device = stream.device();
  Mirrors mirrors(device, stream);
  for (size_t i = 0; i < n; i++)
    for_each_tensor(given[i], [&](const at::Tensor &tensor) { mirrors.reserve(tensor, op_.arguments[i].writes); });
  mirrors.fetch();
  ResultMemory result_memory(op_, given, device);
  std::optional<DefaultGeneratorScope> default_generator;
  if (op_.is_random_by_default)
    default_generator.emplace(RandomState::draw_for_host(std::nullopt, device));
  for (size_t i = 0; i < n; i++) {
    c10::IValue &value = (*stack)[stack->size() - n + i];
    replace_tensors(value, [&](const at::Tensor &tensor) { return mirrors.host(tensor, op_.arguments[i].writes); });
    if (value.isDevice() && value.toDevice().is_cuda())
      value = c10::Device(c10::kCPU);
    else if (op_.arguments[i].name == "generator")
      value = RandomState::draw_for_host(generator_in(value), device).host_generator();
  }
  run_on_cpu(op_, handle, key, stack);
  result_memory.end();
  default_generator.reset();
  mirrors.write_back();
  for (size_t i = stack->size() - op_.n_returns; i < stack->size(); i++)
    replace_tensors((*stack)[i], [&](const at::Tensor &tensor) { return mirrors.device(tensor, &result_memory); });
  mirrors.finish();
}

void Refusal::operator()(const c10::OperatorHandle &, c10::DispatchKeySet, torch::jit::Stack *) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "vgpu: ", op_.name,
                              " is not simulated (`vgpu torch` lists what is; VGPU_TORCH=0 turns the simulation off)");
}

} // namespace vgpu_torch
