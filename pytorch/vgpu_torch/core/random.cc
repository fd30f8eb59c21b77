#include "random.h"
#include "device.h"
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <dlfcn.h>

namespace vgpu_torch {
namespace {

constexpr uint64_t OFFSET_STEP = 4; // a Philox round gives four numbers; torch requires multiples of it
std::mutex default_generator_mutex;

// Mixes seed and offset (the odd constants of SplitMix64 and of a 64-bit linear congruential generator).
uint64_t host_seed(uint64_t seed, uint64_t offset) {
  return offset == 0 ? seed : seed * 0x9E3779B97F4A7C15u + offset * 0xD1342543DE82EF95u + 1;
}

// at::PhiloxCudaState. While a graph is captured its first two members are addresses of device memory.
struct PhiloxState {
  uint64_t seed, offset, offset_in_graph;
  bool captured;
};

// at::CUDAGeneratorImpl::philox_cuda_state: registers the generator with the graph, which torch's other accessors
// refuse. Its result is returned in memory, so that a member function is called like this.
using PhiloxStateOf = PhiloxState (*)(c10::GeneratorImpl *, uint64_t);

PhiloxStateOf philox_state_of() {
  void *torch_cuda = dlopen("libtorch_cuda.so", RTLD_NOLOAD | RTLD_LAZY);
  void *function = dlsym(torch_cuda ? torch_cuda : RTLD_DEFAULT, "_ZN2at17CUDAGeneratorImpl17philox_cuda_stateEm");
  TORCH_CHECK_NOT_IMPLEMENTED(function, "vgpu: random operators in CUDA graphs are not simulated with this torch");
  return reinterpret_cast<PhiloxStateOf>(function);
}

const uint64_t *mapped(uint64_t device_address) {
  const void *alias = device_host_alias(reinterpret_cast<const void *>(device_address));
  TORCH_CHECK_NOT_IMPLEMENTED(
      alias, "vgpu: CUDA graphs are simulated only where device memory is mapped in the program (docs/pytorch.md)");
  return static_cast<const uint64_t *>(alias);
}

} // namespace

at::Generator device_generator(const std::optional<at::Generator> &given, c10::Device device) {
  return given && given->defined() ? *given : at::globalContext().defaultGenerator(device);
}

std::optional<at::Generator> generator_in(const c10::IValue &value) {
  return value.isNone() ? std::nullopt : std::optional<at::Generator>(value.toGenerator());
}

RandomState RandomState::draw(const std::optional<at::Generator> &given, c10::Device device, uint64_t increment) {
  at::Generator generator = device_generator(given, device);
  TORCH_CHECK(generator.device().is_cuda(), "Expected a 'cuda' device type for generator but found '",
              generator.device().type(), "'");
  RandomState state;
  const std::lock_guard<std::mutex> lock(generator.mutex());
  if (!DeviceStream(device).is_capturing()) {
    state.values_ = {generator.current_seed(), generator.get_offset()};
    generator.set_offset(state.values_.offset + increment);
    return state;
  }
  const PhiloxState captured = philox_state_of()(generator.unsafeGetGeneratorImpl(), increment);
  TORCH_CHECK(captured.captured, "vgpu: the generator knows nothing of the capture");
  state.values_ = {0, captured.offset_in_graph};
  state.seed_ = mapped(captured.seed);
  state.offset_ = mapped(captured.offset);
  return state;
}

RandomState RandomState::draw_for_host(const std::optional<at::Generator> &given, c10::Device device) {
  if (!given || !given->defined() || given->device().is_cuda())
    return draw(given, device, OFFSET_STEP);
  RandomState state;
  state.given_ = *given;
  return state;
}

RandomState::Values RandomState::read() const { return seed_ ? Values{*seed_, *offset_ + values_.offset} : values_; }

at::Generator RandomState::host_generator() const {
  if (given_.defined())
    return given_;
  const Values values = read();
  return at::make_generator<at::CPUGeneratorImpl>(host_seed(values.seed, values.offset));
}

DefaultGeneratorScope::DefaultGeneratorScope(const RandomState &random)
    : lock_(default_generator_mutex), generator_(at::detail::getDefaultCPUGenerator()) {
  state_ = generator_.get_state();
  generator_.set_current_seed(random.host_generator().current_seed());
}

DefaultGeneratorScope::~DefaultGeneratorScope() { generator_.set_state(state_); }

} // namespace vgpu_torch
