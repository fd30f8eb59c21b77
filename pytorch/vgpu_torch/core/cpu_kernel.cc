#include "cpu_kernel.h"
#include "arguments.h"
#include "widen.h"

namespace vgpu_torch {
namespace {

bool has_narrow(c10::ArrayRef<c10::IValue> values) {
  bool found = false;
  for (const c10::IValue &value : values)
    for_each_tensor(value, [&](const at::Tensor &tensor) {
      const auto dtype = tensor.scalar_type();
      found |= dtype == at::kHalf || dtype == at::kBFloat16 || dtype == at::kComplexHalf || dtype == at::kBool;
    });
  return found;
}

} // namespace

c10::DispatchKey cpu_key(c10::ArrayRef<c10::IValue> values) {
  bool coo = false, compressed = false, quantized = false;
  for (const c10::IValue &value : values)
    for_each_tensor(value, [&](const at::Tensor &tensor) {
      quantized |= tensor.is_quantized();
      coo |= tensor.layout() == c10::kSparse;
      compressed |= tensor.layout() != c10::kSparse && tensor.layout() != c10::kStrided;
    });
  if (quantized)
    return c10::DispatchKey::QuantizedCPU;
  return compressed ? c10::DispatchKey::SparseCsrCPU : coo ? c10::DispatchKey::SparseCPU : c10::DispatchKey::CPU;
}

void run_on_cpu(const Operator &op, const c10::OperatorHandle &handle, c10::DispatchKey key, torch::jit::Stack *stack) {
  const size_t n = op.arguments.size();
  const c10::ArrayRef<c10::IValue> mirrored(stack->data() + stack->size() - n, n);
  if (op.substitute) {
    if (std::optional<at::Tensor> result = op.substitute(mirrored)) {
      if (op.arguments.back().is_out) {
        const at::Tensor out = mirrored.back().toTensor();
        result = out.resize_(result->sizes()).copy_(*result);
      }
      torch::jit::drop(*stack, n);
      stack->emplace_back(*std::move(result));
      return;
    }
  }
  if (op.cpu_call)
    return op.cpu_call(op, handle, key, stack);
  if (!has_narrow(mirrored)) {
    handle.redispatchBoxed(c10::DispatchKeySet(key), stack);
    return;
  }
  const std::vector<c10::IValue> kept = mirrored.vec();
  const size_t below = stack->size() - n;
  try {
    handle.redispatchBoxed(c10::DispatchKeySet(key), stack);
  } catch (const c10::Error &error) {
    if (!is_lack_of_narrow(op, error.what_without_backtrace()))
      throw;
    stack->resize(below);
    run_widened(handle, op, key, kept, *stack);
  }
}

} // namespace vgpu_torch
