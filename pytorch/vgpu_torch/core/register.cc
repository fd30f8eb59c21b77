// The core's C interface: the Python side (install.py) decides which operator has which kernel.
#include "assertion.h"
#include "device.h"
#include "distribution.h"
#include "fallback.h"
#include "stream_work.h"
#include "trace.h"
#include <ATen/core/enum_tag.h>
#include <c10/util/Exception.h>

namespace vgpu_torch {
namespace {

enum Kind : int { FALLBACK = 0, COPY = 1, REFUSAL = 2, DISTRIBUTION = 3 };

thread_local std::string last_error;

// Torch warns of every kernel that replaces another; here that is the purpose.
struct Silent : c10::WarningHandler {
  void process(const c10::Warning &) override {}
};

std::vector<c10::RegistrationHandleRAII> &registrations() {
  static auto *all = new std::vector<c10::RegistrationHandleRAII>; // never destroyed: kernels outlive static objects
  return *all;
}

c10::KernelFunction kernel(Kind kind, Operator op) {
  switch (kind) {
  case COPY:
    return c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<Copy>(std::move(op)));
  case REFUSAL:
    return c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<Refusal>(std::move(op)));
  case DISTRIBUTION:
    TORCH_CHECK(Distribution::knows(op.name), op.name, " is no distribution");
    return c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<Distribution>(std::move(op)));
  default:
    return c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<Fallback>(std::move(op)));
  }
}

template <typename F> int guarded(F &&body) {
  try {
    body();
    return 0;
  } catch (const c10::Error &error) {
    last_error = error.what_without_backtrace();
  } catch (const std::exception &error) {
    last_error = error.what();
  }
  return -1;
}

} // namespace
} // namespace vgpu_torch

using namespace vgpu_torch;
#define EXPORT extern "C" __attribute__((visibility("default")))

// As in install.py, which calls these by ctypes. 0, or -1 and vgpu_torch_error() says why.
EXPORT const char *vgpu_torch_error() { return last_error.c_str(); }

EXPORT int vgpu_torch_init(int in_place, int async, int assertions_on_device) {
  return guarded([&] {
    const char *missing = device_init();
    TORCH_CHECK(!missing, missing, " not found in the CUDA runtime that torch uses");
    device_set_in_place(in_place);
    ResultMemory::init();
    stream_work_set_async(async);
    assertion_set_on_device(assertions_on_device);
  });
}

EXPORT int vgpu_torch_is_in_place() { return device_is_in_place(); }

// Start (1) or stop (0) recording calls of fallbacks; see vgpu_torch_trace_text().
EXPORT void vgpu_torch_trace(int on) { trace_set(on); }

// The calls since the last question, each once, in order: lines `operator TAB dtype of the first tensor`.
EXPORT const char *vgpu_torch_trace_text() {
  static std::string text;
  text = trace_text();
  return text.c_str();
}

EXPORT int vgpu_torch_override(const char *name, const char *overload, const char *key, int kind, int device_rule,
                               const char *method, const char *kernel_name, unsigned long long refused_dtypes,
                               const char *hidden_writes, const char *alert, const char *alert_when) {
  return guarded([&] {
    const c10::OperatorName operator_name(name, overload);
    const auto handle = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
    Operator op(handle.schema(),
                {static_cast<DeviceRule>(device_rule), method, kernel_name, refused_dtypes, alert, alert_when},
                hidden_writes);
    bool takes_generator = false;
    for (const Argument &argument : op.arguments)
      takes_generator |= argument.name == "generator";
    op.depends_on_values =
        handle.hasTag(at::Tag::dynamic_output_shape) || handle.hasTag(at::Tag::data_dependent_output);
    op.is_random_by_default = !takes_generator && handle.hasTag(at::Tag::nondeterministic_seeded);
    Silent silent;
    const c10::WarningUtils::WarningHandlerGuard quiet(&silent);
    registrations().push_back(c10::Dispatcher::singleton().registerImpl(operator_name, c10::parseDispatchKey(key),
                                                                        kernel(static_cast<Kind>(kind), std::move(op)),
                                                                        std::nullopt, nullptr, "vgpu"));
  });
}
