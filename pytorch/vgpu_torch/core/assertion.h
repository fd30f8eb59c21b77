// Device-side assertions: as on a GPU, a later call reports the error, and the context is lost.
#pragma once
#include "device.h"
#include <string>

namespace vgpu_torch {

// Whether a bad index of an operator asserts on the device (VGPU_TORCH_ASSERT=device) instead of raising an exception
// at once, with the CPU's message.
void assertion_set_on_device(bool on);
bool assertion_is_on_device();

// Whether a CPU kernel's error is one that a GPU's kernel asserts, because it depends on the values in a tensor.
bool assertion_is_of_device(const std::string &message);

// Launches a kernel in the stream that fails an assertion.
void assertion_launch(const DeviceStream &stream, const std::string &operator_name, const std::string &message);
// As assertion_launch, for use in a host function, which must not call CUDA: another thread launches the kernel. The
// context has failed when this function returns.
void assertion_fail(c10::Device device, const std::string &operator_name, const std::string &message);

} // namespace vgpu_torch
