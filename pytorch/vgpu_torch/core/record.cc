#include "record.h"
#include "arguments.h"
#include "cpu_kernel.h"
#include "random.h"
#include "stream_work.h"
#include <ATen/CPUGeneratorImpl.h>

namespace vgpu_torch {
namespace {

using IValues = std::vector<c10::IValue>;
using Contents = Mirrors::Contents;

IValues arguments_on(const torch::jit::Stack &stack, const Operator &op) {
  return {stack.end() - static_cast<std::ptrdiff_t>(op.arguments.size()), stack.end()};
}

std::vector<at::Tensor> results_on(const torch::jit::Stack &stack, const Operator &op) {
  std::vector<at::Tensor> found;
  for (size_t i = stack.size() - op.n_returns; i < stack.size(); i++)
    for_each_tensor(stack[i], [&](const at::Tensor &tensor) { found.push_back(tensor); });
  return found;
}

// The arguments as the CPU's kernel takes them; generators are set when it is called.
bool replace_arguments(const Operator &op, Mirrors &mirrors, IValues &values) {
  for (size_t i = 0; i < values.size(); i++)
    for_each_tensor(values[i], [&](const at::Tensor &tensor) { mirrors.reserve(tensor, op.arguments[i].writes); });
  if (!mirrors.fetch())
    return false;
  for (size_t i = 0; i < values.size(); i++) {
    replace_tensors(values[i], [&](const at::Tensor &tensor) { return mirrors.host(tensor, op.arguments[i].writes); });
    if (values[i].isDevice() && values[i].toDevice().is_cuda())
      values[i] = c10::Device(c10::kCPU);
    if (op.arguments[i].name == "generator")
      values[i] = at::make_generator<at::CPUGeneratorImpl>();
  }
  return true;
}

void results_from(const Operator &op, const c10::OperatorHandle &handle, const DeviceStream &stream, Contents contents,
                  torch::jit::Stack *stack) {
  Mirrors mirrors(stream.device(), stream, contents);
  IValues values = arguments_on(*stack, op);
  replace_arguments(op, mirrors, values);
  torch::jit::Stack scratch(values.begin(), values.end());
  std::optional<DefaultGeneratorScope> default_generator;
  if (op.is_random_by_default)
    default_generator.emplace(RandomState()); // the program's own generator stays unchanged
  run_on_cpu(op, handle, cpu_key(values), &scratch);
  mirrors.write_back();
  for (c10::IValue &result : scratch)
    replace_tensors(result, [&](const at::Tensor &tensor) { return mirrors.device(tensor); });
  torch::jit::drop(*stack, op.arguments.size());
  stack->insert(stack->end(), scratch.begin(), scratch.end());
}

// What one operator needs when it runs. It holds no reference to the device's memory, which the program may free and
// reuse.
struct Recording {
  const Operator *op;
  c10::OperatorHandle handle;
  c10::DispatchKey key;
  IValues arguments;
  std::vector<at::Tensor>
      targets; // tensors for the results; undefined: the result is an argument, or lies in one's memory
  std::vector<std::pair<const void *, const void *>> memory;
  std::optional<RandomState> random;

  void run() const {
    for (const auto &[device, host] : memory)
      TORCH_CHECK(device_host_alias(device) == host, "its memory has been freed");
    torch::jit::Stack stack(arguments.begin(), arguments.end());
    std::optional<DefaultGeneratorScope> default_generator;
    if (op->is_random_by_default)
      default_generator.emplace(*random);
    for (size_t i = 0; i < arguments.size(); i++)
      if (op->arguments[i].name == "generator")
        stack[i] = random->host_generator();
    run_on_cpu(*op, handle, key, &stack);
    const std::vector<at::Tensor> results = results_on(stack, *op);
    TORCH_CHECK(results.size() == targets.size(), "it has another number of results than when it was recorded");
    for (size_t i = 0; i < results.size(); i++) {
      if (!targets[i].defined())
        continue;
      TORCH_CHECK(targets[i].sizes() == results[i].sizes(), "its result has another shape than when it was recorded");
      targets[i].copy_(results[i]);
    }
  }
};

std::optional<RandomState> random_of(const Operator &op, const IValues &given, c10::Device device) {
  for (size_t i = 0; i < given.size(); i++)
    if (op.arguments[i].name == "generator")
      return RandomState::draw_for_host(generator_in(given[i]), device);
  return op.is_random_by_default ? std::optional(RandomState::draw_for_host(std::nullopt, device)) : std::nullopt;
}

// Copy the CPU's tensors as they are now: a kernel's parameters are read when it is launched.
void copy_host_tensors(IValues &values) {
  for (c10::IValue &value : values)
    replace_tensors(value, [](const at::Tensor &tensor) {
      if (!tensor.defined() || !tensor.is_cpu())
        return tensor;
      const at::Tensor copied = tensor.clone();
      copy_bits(tensor, copied);
      return copied;
    });
}

} // namespace

bool record_is_possible(const Operator &op, c10::ArrayRef<c10::IValue> given) {
  bool possible = device_is_in_place() && !op.quantizes;
  for (size_t i = 0; i < given.size(); i++)
    for_each_tensor(given[i], [&](const at::Tensor &tensor) {
      if (tensor.layout() != c10::kStrided || tensor.is_quantized() || (tensor.is_cpu() && op.arguments[i].writes))
        possible = false;
      else if (tensor.is_cuda() && tensor.numel())
        possible &= device_host_alias(tensor.storage().data()) != nullptr;
    });
  return possible;
}

// The results' shapes come from a run of the kernel on zeros, or on ones where it refuses zeros (a division).
void record_results(const Operator &op, const c10::OperatorHandle &handle, const DeviceStream &stream,
                    torch::jit::Stack *stack) {
  const torch::jit::Stack before = *stack;
  try {
    results_from(op, handle, stream, Contents::ZEROS, stack);
  } catch (const std::exception &) {
    *stack = before;
    results_from(op, handle, stream, Contents::ONES, stack);
  }
}

void record(const Operator &op, const c10::OperatorHandle &handle, const DeviceStream &stream,
            torch::jit::Stack *stack) {
  IValues values = arguments_on(*stack, op);
  copy_host_tensors(values);
  record_results(op, handle, stream, stack);

  Mirrors mirrors(stream.device(), stream, Contents::IN_PLACE);
  const std::vector<at::Tensor> results = results_on(*stack, op);
  Recording recording = {&op, handle, cpu_key(values), {}, {}, {}, random_of(op, values, stream.device())};
  const bool mapped = replace_arguments(op, mirrors, values);
  std::vector<bool> is_new;
  for (const at::Tensor &result : results)
    is_new.push_back(result.is_cuda() && !mirrors.has_memory_of(result));
  Mirrors targets(stream.device(), stream, Contents::IN_PLACE);
  for (size_t i = 0; i < results.size(); i++)
    if (is_new[i])
      targets.reserve(results[i], true);
  TORCH_CHECK_NOT_IMPLEMENTED(mapped && targets.fetch(), "vgpu: ", op.name,
                              " cannot run in stream order: its memory is not mapped in the program");
  for (size_t i = 0; i < results.size(); i++)
    recording.targets.push_back(is_new[i] ? targets.host(results[i], true) : at::Tensor());
  recording.arguments = std::move(values);
  recording.memory = mirrors.memory();
  for (const auto &span : targets.memory())
    recording.memory.push_back(span);
  stream_work_add(stream, op.name, [recording = std::move(recording)] { recording.run(); });
}

} // namespace vgpu_torch
