// Device-side assertions: as on a GPU they are found by a later call, and the context is lost.
#pragma once
#include "device.h"
#include <string>

namespace vgpu_torch {

// Whether an operator's bad index raises at once, with the CPU's text, or asserts on the device
// (VGPU_TORCH_ASSERT=device).
void assertion_set_on_device(bool on);
bool assertion_is_on_device();

// Whether a CPU kernel's error is what a GPU's kernel would assert: it depends on values.
bool assertion_is_of_device(const std::string &message);

// Launches a kernel that asserts, in the stream.
void assertion_launch(const DeviceStream &stream, const std::string &operator_name, const std::string &message);
// The same from a host function, which must not call CUDA: another thread launches the kernel. The context has failed
// when this returns.
void assertion_fail(c10::Device device, const std::string &operator_name, const std::string &message);

} // namespace vgpu_torch
