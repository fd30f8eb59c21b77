#include "device.h"
#include <atomic>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

namespace vgpu_torch {
namespace {

enum { MAX_THREADS_PER_MULTIPROCESSOR = 39, MULTIPROCESSOR_COUNT = 16 }; // cudaDeviceAttr
enum { MEMCPY_TO_DEVICE = 1, MEMCPY_TO_HOST = 2 };                       // cudaMemcpyKind

struct Runtime {
  int (*memcpy_async)(void *, const void *, size_t, int, void *);
  int (*stream_synchronize)(void *);
  int (*stream_is_capturing)(void *, int *);
  int (*launch_host_func)(void *, void (*)(void *), void *);
  int (*device_get_attribute)(int *, int, int);
  const char *(*get_error_string)(int);
  void *(*host_alias)(unsigned long long); // vgpu's libcuda only; nullptr elsewhere
} runtime;

std::atomic<bool> in_place{false};

template <typename F> bool find(void *library, const char *name, F &function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  return function != nullptr;
}

void check(int error, const char *what) {
  TORCH_CHECK(error == 0, "CUDA error: ", runtime.get_error_string(error), " (vgpu: ", what, ")");
}

} // namespace

const char *device_init() {
  // A handle of libtorch_cuda finds the symbols of the libcudart that it is linked with.
  void *torch_cuda = dlopen("libtorch_cuda.so", RTLD_NOLOAD | RTLD_LAZY);
  void *library = torch_cuda ? torch_cuda : RTLD_DEFAULT;
  if (!find(library, "cudaMemcpyAsync", runtime.memcpy_async))
    return "cudaMemcpyAsync";
  if (!find(library, "cudaStreamSynchronize", runtime.stream_synchronize))
    return "cudaStreamSynchronize";
  if (!find(library, "cudaStreamIsCapturing", runtime.stream_is_capturing))
    return "cudaStreamIsCapturing";
  if (!find(library, "cudaLaunchHostFunc", runtime.launch_host_func))
    return "cudaLaunchHostFunc";
  if (!find(library, "cudaDeviceGetAttribute", runtime.device_get_attribute))
    return "cudaDeviceGetAttribute";
  if (!find(library, "cudaGetErrorString", runtime.get_error_string))
    return "cudaGetErrorString";
  void *driver = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
  if (driver)
    find(driver, "vgpuHostAlias", runtime.host_alias);
  return nullptr;
}

void device_set_in_place(bool wanted) { in_place = wanted && runtime.host_alias; }
bool device_is_in_place() { return in_place; }

c10::Device device_current() { return c10::impl::VirtualGuardImpl(c10::kCUDA).getDevice(); }

static int attribute(c10::Device device, int number) {
  int value = 0;
  check(runtime.device_get_attribute(&value, number, device.index()), "an attribute of the device");
  return value;
}

int device_multiprocessors(c10::Device device) { return attribute(device, MULTIPROCESSOR_COUNT); }
int device_threads_per_multiprocessor(c10::Device device) { return attribute(device, MAX_THREADS_PER_MULTIPROCESSOR); }

DeviceStream::DeviceStream(c10::Device device) {
  const c10::impl::VirtualGuardImpl guard(c10::kCUDA);
  handle_ = guard.getStreamNativeHandle(guard.getStream(device));
}

void DeviceStream::to_host(void *target, const void *source, size_t nbytes) const {
  check(runtime.memcpy_async(target, source, nbytes, MEMCPY_TO_HOST, handle_), "an operator's input");
}

void DeviceStream::to_device(void *target, const void *source, size_t nbytes) const {
  check(runtime.memcpy_async(target, source, nbytes, MEMCPY_TO_DEVICE, handle_), "an operator's result");
}

void DeviceStream::synchronize() const {
  check(runtime.stream_synchronize(handle_), "waiting for the stream before an operator");
}

bool DeviceStream::is_capturing() const {
  int status = 0;
  check(runtime.stream_is_capturing(handle_, &status), "the stream's capture status");
  return status != 0;
}

void DeviceStream::launch_host_function(void (*function)(void *), void *argument) const {
  check(runtime.launch_host_func(handle_, function, argument), "an operator as a host function");
}

void *device_host_alias(const void *device_pointer) {
  return runtime.host_alias ? runtime.host_alias(reinterpret_cast<unsigned long long>(device_pointer)) : nullptr;
}

} // namespace vgpu_torch
