#include "distribution.h"
#include "assertion.h"
#include "check.h"
#include "device.h"
#include "launch_layout.h"
#include "mirror.h"
#include "random.h"
#include "stream_work.h"
#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/DeviceGuard.h>
#include <functional>
#include <limits>
#include <map>
#include <numeric>

namespace vgpu_torch {
namespace {

using Values = c10::ArrayRef<c10::IValue>;
using Fill = void (*)(const at::Tensor &host, Values values, const Draws &draws);

// As both of torch's kernels for floating point distributions: a draw gives four numbers, or two of double precision.
template <typename scalar_t, typename F> void fill_uniform(const at::Tensor &host, const Draws &draws, F &&transform) {
  scalar_t *out = host.mutable_data_ptr<scalar_t>();
  if constexpr (std::is_same_v<scalar_t, double>)
    draws.for_each<2>(
        [&](int64_t i, const Philox4 &x, int k) { out[i] = transform(philox_uniform_double(x[2 * k], x[2 * k + 1])); });
  else
    draws.for_each<4>([&](int64_t i, const Philox4 &x, int k) { out[i] = transform(philox_uniform(x[k])); });
}

template <typename scalar_t, typename F> void fill_normal(const at::Tensor &host, const Draws &draws, F &&transform) {
  scalar_t *out = host.mutable_data_ptr<scalar_t>();
  if constexpr (std::is_same_v<scalar_t, double>)
    draws.for_each<2>([&](int64_t i, const Philox4 &x, int k) {
      out[i] = transform(philox_normal_double(x[0], x[1], x[2], x[3])[k]);
    });
  else
    draws.for_each<4>([&](int64_t i, const Philox4 &x, int k) {
      out[i] = transform(philox_normal(x[k & 2], x[(k & 2) + 1])[k & 1]);
    });
}

// The type in which torch computes a distribution of `scalar_t`.
template <typename scalar_t> using Wide = std::conditional_t<std::is_same_v<scalar_t, double>, double, float>;

#define DISPATCH_FLOATING(...)                                                                                         \
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, host.scalar_type(), "vgpu", [&] { __VA_ARGS__ })
#define DISPATCH_ALL(...)                                                                                              \
  AT_DISPATCH_ALL_TYPES_AND3(at::kHalf, at::kBFloat16, at::kBool, host.scalar_type(), "vgpu", [&] { __VA_ARGS__ })

void uniform(const at::Tensor &host, Values values, const Draws &draws) {
  DISPATCH_FLOATING({
    const auto from = static_cast<scalar_t>(values[1].toDouble()), to = static_cast<scalar_t>(values[2].toDouble());
    const auto range = static_cast<Wide<scalar_t>>(to - from), base = static_cast<Wide<scalar_t>>(from);
    fill_uniform<scalar_t>(host, draws, [&](Wide<scalar_t> x) {
      const auto value = static_cast<scalar_t>(std::fma(x, range, base));
      return value == to ? from : value; // (0, 1] becomes [0, 1)
    });
  });
}

void normal(const at::Tensor &host, Values values, const Draws &draws) {
  DISPATCH_FLOATING({
    const Wide<scalar_t> mean = values[1].toDouble(), std = values[2].toDouble();
    fill_normal<scalar_t>(host, draws, [&](Wide<scalar_t> x) { return static_cast<scalar_t>(std::fma(x, std, mean)); });
  });
}

void log_normal(const at::Tensor &host, Values values, const Draws &draws) {
  DISPATCH_FLOATING({
    const Wide<scalar_t> mean = values[1].toDouble(), std = values[2].toDouble();
    fill_normal<scalar_t>(host, draws,
                          [&](Wide<scalar_t> x) { return static_cast<scalar_t>(std::exp(std::fma(x, std, mean))); });
  });
}

void exponential(const at::Tensor &host, Values values, const Draws &draws) {
  DISPATCH_FLOATING({
    using wide_t = Wide<scalar_t>;
    const wide_t lambda = values[1].toDouble(), epsilon = std::numeric_limits<wide_t>::epsilon() / 2;
    fill_uniform<scalar_t>(host, draws, [&](wide_t x) {
      const wide_t log = x >= 1 - epsilon ? -epsilon : std::log(x); // never 0
      return static_cast<scalar_t>(wide_t(-1) / lambda * log);
    });
  });
}

void cauchy(const at::Tensor &host, Values values, const Draws &draws) {
  DISPATCH_FLOATING({
    using wide_t = Wide<scalar_t>;
    const wide_t median = values[1].toDouble(), sigma = values[2].toDouble();
    const wide_t epsilon = std::is_same_v<wide_t, double> ? 0 : std::numeric_limits<wide_t>::epsilon();
    fill_uniform<scalar_t>(host, draws, [&](wide_t x) {
      const wide_t clipped = std::min(std::max(x, epsilon), 1 - epsilon);
      return static_cast<scalar_t>(median + sigma * std::tan(wide_t(M_PI) * (clipped - wide_t(0.5))));
    });
  });
}

void geometric(const at::Tensor &host, Values values, const Draws &draws) {
  TORCH_CHECK_NOT_IMPLEMENTED(host.scalar_type() != at::kBool, "\"geometric_cuda\" not implemented for 'Bool'");
  DISPATCH_ALL({
    using wide_t = Wide<scalar_t>;
    const auto p = static_cast<wide_t>(values[1].toDouble());
    fill_uniform<scalar_t>(host, draws,
                           [&](wide_t x) { return static_cast<scalar_t>(std::ceil(std::log(x) / std::log1p(-p))); });
  });
}

void bernoulli(const at::Tensor &host, Values values, const Draws &draws) {
  DISPATCH_ALL({
    const auto p = static_cast<Wide<scalar_t>>(values[1].toDouble());
    fill_uniform<scalar_t>(host, draws, [&](Wide<scalar_t> x) { return static_cast<scalar_t>(x < p); });
  });
}

// Integers: 32 bits a number, or 64 where the range asks for it.
template <typename scalar_t, typename F>
void fill_integers(const at::Tensor &host, const Draws &draws, bool wide, F &&transform) {
  scalar_t *out = host.mutable_data_ptr<scalar_t>();
  if (wide)
    draws.for_each<2>([&](int64_t i, const Philox4 &x, int k) {
      out[i] = transform(static_cast<uint64_t>(x[2 * k]) << 32 | x[2 * k + 1]);
    });
  else
    draws.for_each<4>([&](int64_t i, const Philox4 &x, int k) { out[i] = transform(uint64_t(x[k])); });
}

// The greatest value that random_() without bounds gives, plus 1.
template <typename scalar_t> uint64_t default_range() {
  if constexpr (std::is_same_v<scalar_t, bool>)
    return 2;
  else if constexpr (std::is_integral_v<scalar_t>)
    return static_cast<uint64_t>(std::numeric_limits<scalar_t>::max()) + 1;
  else
    return (1ull << std::numeric_limits<scalar_t>::digits) + 1;
}

void random_default(const at::Tensor &host, Values, const Draws &draws) {
  DISPATCH_ALL({
    const bool wide = std::is_same_v<scalar_t, double> || std::is_same_v<scalar_t, int64_t>;
    fill_integers<scalar_t>(host, draws, wide,
                            [&](uint64_t x) { return static_cast<scalar_t>(x % default_range<scalar_t>()); });
  });
}

constexpr uint64_t WIDE_RANGE = 1ull << 28; // from here on torch draws 64 bits, so that % stays fair

void random_between(const at::Tensor &host, int64_t from, uint64_t range, const Draws &draws) {
  DISPATCH_ALL({
    fill_integers<scalar_t>(host, draws, range >= WIDE_RANGE,
                            [&](uint64_t x) { return static_cast<scalar_t>(static_cast<int64_t>(x % range) + from); });
  });
}

void random_to(const at::Tensor &host, Values values, const Draws &draws) {
  random_between(host, 0, static_cast<uint64_t>(values[1].toInt()), draws);
}

void random_from(const at::Tensor &host, Values values, const Draws &draws) {
  const int64_t from = values[1].toInt();
  if (!values[2].isNone())
    return random_between(host, from, static_cast<uint64_t>(values[2].toInt()) - static_cast<uint64_t>(from), draws);
  if (from == std::numeric_limits<int64_t>::min())
    DISPATCH_ALL({
      fill_integers<scalar_t>(host, draws, true,
                              [&](uint64_t x) { return static_cast<scalar_t>(static_cast<int64_t>(x)); });
    });
  else
    DISPATCH_ALL({
      uint64_t greatest = default_range<scalar_t>() - 1;
      random_between(host, from, greatest - static_cast<uint64_t>(from) + 1, draws);
    });
}

// Whether torch draws 64 bits a number, two in a call: it advances the generator by its calls.
bool is_wide(const std::string &name, const at::Tensor &self, Values values) {
  const bool is_double = self.scalar_type() == at::kDouble;
  if (name == "aten::random_")
    return is_double || self.scalar_type() == at::kLong;
  if (name == "aten::random_.to")
    return static_cast<uint64_t>(values[1].toInt()) >= WIDE_RANGE;
  if (name != "aten::random_.from")
    return is_double;
  const int64_t from = values[1].toInt();
  if (!values[2].isNone())
    return static_cast<uint64_t>(values[2].toInt()) - static_cast<uint64_t>(from) >= WIDE_RANGE;
  const at::Tensor &host = self;
  bool wide = from == std::numeric_limits<int64_t>::min();
  DISPATCH_ALL({ wide |= default_range<scalar_t>() - static_cast<uint64_t>(from) >= WIDE_RANGE; });
  return wide;
}

struct Entry {
  Fill fill;
  size_t generator; // index of the argument
};

const std::map<std::string, Entry> &entries() {
  static const std::map<std::string, Entry> all = {
      {"aten::uniform_", {uniform, 3}},           {"aten::normal_", {normal, 3}},
      {"aten::log_normal_", {log_normal, 3}},     {"aten::cauchy_", {cauchy, 3}},
      {"aten::exponential_", {exponential, 2}},   {"aten::geometric_", {geometric, 2}},
      {"aten::bernoulli_.float", {bernoulli, 2}}, {"aten::random_", {random_default, 1}},
      {"aten::random_.to", {random_to, 2}},       {"aten::random_.from", {random_from, 3}},
  };
  return all;
}

// The order in which TensorIterator visits a tensor: by its strides, not by its sizes.
std::vector<int64_t> memory_order(const at::Tensor &tensor) {
  std::vector<int64_t> order(tensor.dim());
  std::iota(order.begin(), order.end(), 0);
  if (!tensor.is_contiguous())
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return tensor.stride(a) != tensor.stride(b) ? tensor.stride(a) > tensor.stride(b) : false;
    });
  return order;
}

using Compute = std::function<at::Tensor(const at::Tensor &like, const Draws &draws)>;

// Writes the numbers of `compute`, a CPU tensor of the shape of `like`: now, or in stream order.
void write(const std::string &name, const at::Tensor &device, Draws draws, Compute compute) {
  const DeviceStream stream(device.device());
  const Order order = stream_work_order(stream);
  Mirrors mirrors(device.device(), stream, Mirrors::Contents::IN_PLACE);
  mirrors.reserve(device, true);
  if (order == Order::NOW || !device_is_in_place() || !mirrors.fetch()) {
    TORCH_CHECK_NOT_IMPLEMENTED(order != Order::CAPTURED, "vgpu: ", name,
                                " is not simulated in a CUDA graph where memory is not mapped (docs/pytorch.md)");
    draws.resolve();
    try {
      device.copy_(compute(device, draws));
    } catch (const c10::Error &error) {
      if (!assertion_is_on_device() || !assertion_is_of_device(error.what_without_backtrace()))
        throw;
      assertion_launch(stream, name, error.what_without_backtrace());
    }
    return;
  }
  const at::Tensor host = mirrors.host(device, true);
  stream_work_add(stream, name, [host, draws, compute = std::move(compute)]() mutable {
    draws.resolve();
    host.copy_(compute(host, draws));
  });
}

// The arguments that are numbers: the first one is the device's tensor to write, and is left out.
std::vector<c10::IValue> without_tensors(std::vector<c10::IValue> values) {
  values[0] = c10::IValue();
  return values;
}

// A tensor of parameters as the CPU will read it when `write` computes.
at::Tensor parameters(const at::Tensor &tensor, c10::Device device) {
  const DeviceStream stream(device);
  if (!tensor.is_cuda() || stream_work_order(stream) == Order::NOW)
    return tensor.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
  Mirrors mirrors(device, stream, Mirrors::Contents::IN_PLACE);
  mirrors.reserve(tensor, false);
  if (device_is_in_place() && mirrors.fetch())
    return mirrors.host(tensor, false);
  return tensor.to(at::kCPU);
}

// Probabilities per element: four elements a thread, in the order of the sizes.
at::Tensor bernoulli_tensor(const at::Tensor &like, const at::Tensor &probabilities, const Draws &draws) {
  const at::Tensor p = probabilities.to(like.scalar_type() == at::kDouble ? at::kDouble : at::kFloat)
                           .expand(like.sizes())
                           .to(at::kDouble)
                           .contiguous();
  const at::Tensor host = at::empty(like.sizes(), like.options().device(at::kCPU));
  const double *probability = p.const_data_ptr<double>();
  DISPATCH_ALL({
    scalar_t *out = host.mutable_data_ptr<scalar_t>();
    for (int64_t i = 0; i < host.numel(); i++) {
      TORCH_CHECK(probability[i] >= 0 && probability[i] <= 1, "bernoulli: the probability ", probability[i],
                  " is out of range [0, 1]");
      out[i] = static_cast<scalar_t>(philox_uniform(draws.at(i / 4, 0)[i % 4]) <= probability[i]);
    }
  });
  return host;
}

// Which elements a dropout keeps, as a CPU tensor of 0 and 1 in the order that the kernel draws in.
at::Tensor dropout_mask(const at::Tensor &like, int vector, bool is_double, double keep, const Draws &draws) {
  const at::Tensor host = at::empty(like.sizes(), at::TensorOptions(like.scalar_type()));
  const auto keep_wide = static_cast<float>(keep);
  uint8_t *out = static_cast<uint8_t *>(host.mutable_data_ptr());
  const auto kept = [&](int64_t i, const Philox4 &x, int k) {
    out[i] = is_double ? philox_uniform(x[k]) < keep : philox_uniform(x[k]) < keep_wide;
  };
  if (vector == 1)
    draws.for_each<4>(kept);
  else
    draws.for_each_vector(vector, kept);
  return host;
}

std::pair<at::Tensor, at::Tensor> dropout(const std::string &name, const at::Tensor &self, double keep,
                                          at::ScalarType dtype, const std::optional<at::Generator> &generator) {
  at::Tensor mask = at::empty_like(self, self.options().dtype(dtype));
  if (self.numel() == 0)
    return {self.clone(), mask};
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(self.scalar_type()), "\"fused_dropout\" not implemented for '",
                              toString(self.scalar_type()), "'");
  const Draws draws = Draws::of_distribution(self, 4, generator);
  const int vector = dropout_vector_size(self);
  at::Tensor drawn = mask; // in the order of its memory, where a thread has several elements
  if (vector > 1)
    drawn = at::empty({0}, mask.options()).set_(mask.storage(), mask.storage_offset(), {mask.numel()});
  const bool is_double = self.scalar_type() == at::kDouble;
  write(name, drawn, draws, [vector, is_double, keep](const at::Tensor &like, const Draws &numbers) {
    return dropout_mask(like, vector, is_double, keep, numbers);
  });
  return {at::mul(at::mul(self, mask), 1.0 / keep), mask};
}

} // namespace

// Complex numbers are two real ones; a complex normal distribution's variance is shared by both.
bool Distribution::draw_complex(const c10::OperatorHandle &handle, std::vector<c10::IValue> values,
                                torch::jit::Stack &stack) {
  if (op_.name != "aten::uniform_" && op_.name != "aten::normal_")
    return false;
  const at::Tensor self = values[0].toTensor();
  const bool is_normal = op_.name == "aten::normal_";
  values[0] = at::view_as_real(self);
  const double mean = values[1].toDouble();
  if (is_normal) {
    values[1] = 0.0;
    values[2] = values[2].toDouble() / std::sqrt(2.0);
  }
  torch::jit::drop(stack, values.size());
  torch::jit::Stack real(values.begin(), values.end());
  (*this)(handle, c10::DispatchKeySet(), &real);
  if (is_normal && mean != 0)
    self.add_(mean);
  stack.emplace_back(self);
  return true;
}

bool Distribution::knows(const std::string &name) {
  return entries().count(name) || name == "aten::bernoulli_.Tensor" || name == "aten::native_dropout" ||
         name == "aten::_fused_dropout";
}

void Distribution::operator()(const c10::OperatorHandle &handle, c10::DispatchKeySet, torch::jit::Stack *stack) {
  const size_t n = op_.arguments.size();
  const std::vector<c10::IValue> values(stack->end() - static_cast<std::ptrdiff_t>(n), stack->end());
  const at::Tensor self = values[0].toTensor();
  if (self.is_complex() && draw_complex(handle, values, *stack))
    return;
  check_call(op_, values);
  const c10::DeviceGuard guard(self.device());
  if (op_.name == "aten::native_dropout" || op_.name == "aten::_fused_dropout") {
    const bool fused = op_.name == "aten::_fused_dropout";
    const double p = values[1].toDouble();
    torch::jit::drop(*stack, n);
    std::pair<at::Tensor, at::Tensor> results;
    if (fused)
      results = dropout(op_.name, self, p, at::kByte, generator_in(values[2]));
    else if (!values[2].isNone() && !values[2].toBool())
      results = {self.clone(), at::ones_like(self, self.options().dtype(at::kBool))};
    else if (p == 1)
      results = {at::zeros_like(self), at::zeros_like(self, self.options().dtype(at::kBool))};
    else
      results = dropout(op_.name, self, 1 - p, at::kBool, std::nullopt);
    stack->emplace_back(std::move(results.first));
    stack->emplace_back(std::move(results.second));
    return;
  }
  // The CPU's operator checks the parameters: on a tensor without elements it draws nothing.
  std::vector<c10::IValue> probe = values;
  probe[0] = at::empty({0}, self.options().device(at::kCPU));
  if (op_.name == "aten::bernoulli_.Tensor") {
    TORCH_CHECK(at::isFloatingType(values[1].toTensor().scalar_type()),
                "expected probabilities tensor to have floating type, got ", values[1].toTensor().scalar_type());
  } else {
    probe.back() = c10::IValue();
    handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &probe);
  }
  torch::jit::drop(*stack, n);
  if (self.numel() > 0 && op_.name == "aten::bernoulli_.Tensor") {
    const at::Tensor p = parameters(values[1].toTensor(), self.device());
    write(op_.name, self, Draws::of_bernoulli(self, generator_in(values[2])),
          [p](const at::Tensor &like, const Draws &draws) { return bernoulli_tensor(like, p, draws); });
  } else if (self.numel() > 0) {
    const Entry &entry = entries().at(op_.name);
    const int unroll = is_wide(op_.name, self, values) ? 2 : 4;
    const Draws draws = Draws::of_distribution(self, unroll, generator_in(values[entry.generator]));
    write(op_.name, self.permute(memory_order(self)), draws,
          [&entry, values = without_tensors(values)](const at::Tensor &like, const Draws &numbers) {
            const at::Tensor host = at::empty(like.sizes(), like.options().device(at::kCPU));
            entry.fill(host, values, numbers);
            return host;
          });
  }
  stack->emplace_back(self);
}

} // namespace vgpu_torch
