#include "device.h"
#include <atomic>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

namespace vgpu_torch {
namespace {

enum { MAX_THREADS_PER_MULTIPROCESSOR = 39, MULTIPROCESSOR_COUNT = 16 }; // cudaDeviceAttr
enum { MEMCPY_TO_DEVICE = 1, MEMCPY_TO_HOST = 2 };                       // cudaMemcpyKind
enum { STREAM_NON_BLOCKING = 1, NO_DESTRUCTOR_SYNC = 1, MOVE_TO_GRAPH = 1 };

struct Runtime {
  int (*memcpy_async)(void *, const void *, size_t, int, void *);
  int (*stream_synchronize)(void *);
  int (*stream_is_capturing)(void *, int *);
  int (*launch_host_func)(void *, void (*)(void *), void *);
  int (*device_get_attribute)(int *, int, int);
  int (*set_device)(int);
  const char *(*get_error_string)(int);
} runtime;

struct Driver {
  int (*stream_create)(void **, unsigned);
  int (*stream_capture_info)(void *, int *, uint64_t *, void **graph, void *, void *);
  int (*user_object_create)(void **, void *, void (*)(void *), unsigned, unsigned);
  int (*graph_retain_user_object)(void *graph, void *object, unsigned, unsigned);
  int (*module_load_data)(void **, const void *);
  int (*module_get_function)(void **, void *, const char *);
  int (*launch_kernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                       void **);
  void *(*host_alias)(unsigned long long); // vgpu's libcuda only
} driver;

// torch's own check: raises torch.AcceleratorError with its text. Its last parameter came with torch 2.14.
void (*torch_check)(int, const char *, const char *, uint32_t, bool, void *);

// c10::cuda::warn_or_error_on_sync, of libc10_cuda.
void (*torch_note_synchronization)();

std::atomic<bool> in_place{false};

template <typename F> bool find(void *library, const char *name, F &function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  return function != nullptr;
}

// Errors of the runtime and of the driver: those that occur here have the same numbers in both.
void check(int error, const char *what) {
  if (error == 0)
    return;
  if (torch_check)
    torch_check(error, __FILE__, what, __LINE__, true, nullptr);
  TORCH_CHECK(false, "CUDA error: ", runtime.get_error_string(error), " (vgpu: ", what, ")");
}

const char *find_runtime() {
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
  if (!find(library, "cudaSetDevice", runtime.set_device))
    return "cudaSetDevice";
  if (!find(library, "cudaGetErrorString", runtime.get_error_string))
    return "cudaGetErrorString";
  find(library, "_ZN3c104cuda21warn_or_error_on_syncEv", torch_note_synchronization);
  const char *mangled = "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_jb";
  if (!find(library, mangled, torch_check))
    find(library, (std::string(mangled) + "PNS0_19CUDAErrorLogCaptureE").c_str(), torch_check);
  return nullptr;
}

const char *find_driver() {
  void *library = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
  if (!library)
    return "libcuda.so.1";
  if (!find(library, "cuStreamCreate", driver.stream_create))
    return "cuStreamCreate";
  if (!find(library, "cuStreamGetCaptureInfo_v2", driver.stream_capture_info))
    return "cuStreamGetCaptureInfo_v2";
  if (!find(library, "cuUserObjectCreate", driver.user_object_create))
    return "cuUserObjectCreate";
  if (!find(library, "cuGraphRetainUserObject", driver.graph_retain_user_object))
    return "cuGraphRetainUserObject";
  if (!find(library, "cuModuleLoadData", driver.module_load_data))
    return "cuModuleLoadData";
  if (!find(library, "cuModuleGetFunction", driver.module_get_function))
    return "cuModuleGetFunction";
  if (!find(library, "cuLaunchKernel", driver.launch_kernel))
    return "cuLaunchKernel";
  find(library, "vgpuHostAlias", driver.host_alias);
  return nullptr;
}

} // namespace

const char *device_init() {
  const char *missing = find_runtime();
  return missing ? missing : find_driver();
}

void device_set_in_place(bool wanted) { in_place = wanted && driver.host_alias; }
bool device_is_in_place() { return in_place; }

c10::Device device_current() { return c10::impl::VirtualGuardImpl(c10::kCUDA).getDevice(); }

void device_set_current(c10::Device device) { check(runtime.set_device(device.index()), "the device of a thread"); }

void device_note_synchronization() {
  if (torch_note_synchronization)
    torch_note_synchronization();
}

static int attribute(c10::Device device, int number) {
  int value = 0;
  check(runtime.device_get_attribute(&value, number, device.index()), "an attribute of the device");
  return value;
}

int device_multiprocessors(c10::Device device) { return attribute(device, MULTIPROCESSOR_COUNT); }
int device_threads_per_multiprocessor(c10::Device device) { return attribute(device, MAX_THREADS_PER_MULTIPROCESSOR); }

DeviceStream::DeviceStream(c10::Device device) : device_(device) {
  const c10::impl::VirtualGuardImpl guard(c10::kCUDA);
  handle_ = guard.getStreamNativeHandle(guard.getStream(device));
}

DeviceStream DeviceStream::create(c10::Device device) {
  void *handle = nullptr;
  check(driver.stream_create(&handle, STREAM_NON_BLOCKING), "a stream");
  return {device, handle};
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

void DeviceStream::give_to_graph(void (*destroy)(void *), void *argument) const {
  int status = 0;
  void *graph = nullptr, *object = nullptr;
  check(driver.stream_capture_info(handle_, &status, nullptr, &graph, nullptr, nullptr), "the graph of a capture");
  TORCH_CHECK(graph, "vgpu: the capture has no graph");
  check(driver.user_object_create(&object, argument, destroy, 1, NO_DESTRUCTOR_SYNC), "an operator of a graph");
  check(driver.graph_retain_user_object(graph, object, 1, MOVE_TO_GRAPH), "an operator of a graph");
}

void DeviceStream::launch_kernel(const std::string &ptx, const char *name) const {
  void *module = nullptr, *function = nullptr;
  check(driver.module_load_data(&module, ptx.c_str()), "a kernel of vgpu's");
  check(driver.module_get_function(&function, module, name), "a kernel of vgpu's");
  check(driver.launch_kernel(function, 1, 1, 1, 1, 1, 1, 0, handle_, nullptr, nullptr), "a kernel of vgpu's");
}

void *device_host_alias(const void *device_pointer) {
  return driver.host_alias ? driver.host_alias(reinterpret_cast<unsigned long long>(device_pointer)) : nullptr;
}

} // namespace vgpu_torch
