#include "fallback.h"
#include "arguments.h"
#include "check.h"
#include "mirror.h"
#include "random.h"
#include "trace.h"
#include "widen.h"
#include <c10/core/DeviceGuard.h>

namespace vgpu_torch {
namespace {

// The device that the call is for: of its first CUDA tensor, else of a device argument, else the current one.
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

c10::DispatchKey cpu_key(c10::ArrayRef<c10::IValue> values) {
  bool coo = false, compressed = false;
  for (const c10::IValue &value : values)
    for_each_tensor(value, [&](const at::Tensor &tensor) {
      coo |= tensor.layout() == c10::kSparse;
      compressed |= tensor.layout() != c10::kSparse && tensor.layout() != c10::kStrided;
    });
  return compressed ? c10::DispatchKey::SparseCsrCPU : coo ? c10::DispatchKey::SparseCPU : c10::DispatchKey::CPU;
}

bool has_half(c10::ArrayRef<c10::IValue> values) {
  bool found = false;
  for (const c10::IValue &value : values)
    for_each_tensor(value, [&](const at::Tensor &tensor) {
      const auto dtype = tensor.scalar_type();
      found |= dtype == at::kHalf || dtype == at::kBFloat16 || dtype == at::kComplexHalf;
    });
  return found;
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
  TORCH_CHECK_NOT_IMPLEMENTED(!stream.is_capturing(), "vgpu: ", op_.name,
                              " is not simulated while a CUDA graph is captured (docs/pytorch.md)");
  const c10::DispatchKey key = cpu_key(given);

  Mirrors mirrors(device, stream);
  for (size_t i = 0; i < n; i++)
    for_each_tensor(given[i], [&](const at::Tensor &tensor) { mirrors.reserve(tensor, op_.arguments[i].writes); });
  mirrors.fetch();
  std::optional<DefaultGeneratorScope> default_generator;
  if (op_.is_random_by_default)
    default_generator.emplace(device);
  for (size_t i = 0; i < n; i++) {
    c10::IValue &value = (*stack)[stack->size() - n + i];
    replace_tensors(value, [&](const at::Tensor &tensor) { return mirrors.host(tensor, op_.arguments[i].writes); });
    if (value.isDevice() && value.toDevice().is_cuda())
      value = c10::Device(c10::kCPU);
    else if (op_.arguments[i].name == "generator")
      value = host_generator(value.isNone() ? std::nullopt : std::optional<at::Generator>(value.toGenerator()), device);
  }
  run_on_cpu(handle, key, stack);
  default_generator.reset();
  mirrors.write_back();
  for (size_t i = stack->size() - op_.n_returns; i < stack->size(); i++)
    replace_tensors((*stack)[i], [&](const at::Tensor &tensor) { return mirrors.device(tensor); });
  mirrors.finish();
}

void Fallback::run_on_cpu(const c10::OperatorHandle &handle, c10::DispatchKey key, torch::jit::Stack *stack) const {
  const size_t n = op_.arguments.size();
  const c10::ArrayRef<c10::IValue> mirrored(stack->data() + stack->size() - n, n);
  if (!has_half(mirrored)) {
    handle.redispatchBoxed(c10::DispatchKeySet(key), stack);
    return;
  }
  const std::vector<c10::IValue> kept = mirrored.vec();
  const size_t below = stack->size() - n;
  try {
    handle.redispatchBoxed(c10::DispatchKeySet(key), stack);
  } catch (const c10::Error &error) {
    if (!is_lack_of_half(error.what_without_backtrace()))
      throw;
    stack->resize(below);
    run_widened(handle, op_, key, kept, *stack);
  }
}

void Refusal::operator()(const c10::OperatorHandle &, c10::DispatchKeySet, torch::jit::Stack *) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "vgpu: ", op_.name,
                              " is not simulated (`vgpu torch` lists what is; VGPU_TORCH=0 turns the simulation off)");
}

} // namespace vgpu_torch
