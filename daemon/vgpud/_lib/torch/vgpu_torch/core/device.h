// The simulated device as the core sees it: the current stream, copies, and memory that is mapped in this process.
//
// No CUDA header is needed: streams come through c10's device guard, and the few runtime functions are looked up in the
// libcudart that torch has loaded.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <cstddef>

namespace vgpu_torch {

// Finds the runtime's functions. Returns nullptr, or what is missing.
const char *device_init();

// Whether device memory can be addressed in place (`vgpuHostAlias`); otherwise every operator copies.
void device_set_in_place(bool wanted);
bool device_is_in_place();

c10::Device device_current();
int device_multiprocessors(c10::Device device);
int device_threads_per_multiprocessor(c10::Device device);

// The calling thread's current stream on one device. The device must be the current one (a DeviceGuard is held).
class DeviceStream {
public:
  explicit DeviceStream(c10::Device device);
  void to_host(void *target, const void *source, size_t nbytes) const;
  void to_device(void *target, const void *source, size_t nbytes) const;
  void synchronize() const;
  bool is_capturing() const;
  // Have `function(argument)` called in stream order, on a thread of the driver's.
  void launch_host_function(void (*function)(void *), void *argument) const;

private:
  void *handle_;
};

// The address in this process of device memory, or nullptr where it is not mapped.
void *device_host_alias(const void *device_pointer);

} // namespace vgpu_torch
