// The simulated device as the core sees it: the current stream, copies, and memory that is mapped in this process.
//
// No CUDA header is needed: streams come from c10's device guard, and the few functions used are looked up in the
// libcudart that torch has loaded, and in vgpu's libcuda.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <cstddef>
#include <string>

namespace vgpu_torch {

// Looks up the functions of CUDA's runtime and driver. Returns nullptr, or the name of what is missing.
const char *device_init();

// Whether operators address device memory in place (`vgpuHostAlias`); otherwise every operator copies it.
void device_set_in_place(bool wanted);
bool device_is_in_place();

c10::Device device_current();
// Warns or raises, according to torch.cuda.set_sync_debug_mode. For an operator that waits for the device on a GPU.
void device_note_synchronization();
// Makes the device's context current in a thread that has none.
void device_set_current(c10::Device device);
int device_multiprocessors(c10::Device device);
int device_threads_per_multiprocessor(c10::Device device);

// The calling thread's current stream on one device. The device must be the current one (a DeviceGuard is held).
class DeviceStream {
public:
  explicit DeviceStream(c10::Device device);
  // A new stream that does not synchronise with the default stream.
  static DeviceStream create(c10::Device device);

  c10::Device device() const { return device_; }
  void to_host(void *target, const void *source, size_t nbytes) const;
  void to_device(void *target, const void *source, size_t nbytes) const;
  void synchronize() const;
  bool is_capturing() const;
  // Enqueue a call of `function(argument)` in the stream; it runs on a thread of the driver.
  void launch_host_function(void (*function)(void *), void *argument) const;
  // Make the graph that is being captured call `destroy(argument)` when it and all graphs made from it are destroyed.
  void give_to_graph(void (*destroy)(void *), void *argument) const;
  // Launch one thread of a kernel without parameters.
  void launch_kernel(const std::string &ptx, const char *name) const;

private:
  DeviceStream(c10::Device device, void *handle) : device_(device), handle_(handle) {}
  c10::Device device_;
  void *handle_;
};

// The address at which device memory is mapped in this process, or nullptr if it is not mapped.
void *device_host_alias(const void *device_pointer);

} // namespace vgpu_torch
