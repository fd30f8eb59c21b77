// Which calls wait for the work ahead of them, and whether their effect is visible on return. Each call is made in a
// thread of its own behind a kernel that runs until the host raises a flag, so nothing here depends on how fast the
// machine is: a call that must wait cannot return before the flag, and a call that must not wait returns without it.
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

#include "vgt_check.h"

enum { KIB = 1 << 10, MIB = 1 << 20, EARLY_MS = 30, LATE_MS = 150000 };
enum wait { WAITS, RETURNS };

__device__ int symbol[MIB / 4];
// On a channel without shared memory a kernel does not see what the host writes while it runs (`device_gate` is null
// then): a host function holds the stream instead, and calls that return early only with shared memory are not tested.
static volatile int *gate, *device_gate;

__global__ void hold(volatile int *flag) {
  while (!*flag)
    ;
}

static void hold_by_host(void *) {
  while (!*gate)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

__global__ void fill(unsigned char *p, unsigned char value, size_t n) {
  for (size_t i = threadIdx.x; i < n; i += blockDim.x)
    p[i] = value;
}

static bool holds(const void *p, unsigned char value, size_t n) {
  const volatile unsigned char *bytes = (const volatile unsigned char *)p;
  for (size_t i = 0; i < n; i++)
    if (bytes[i] != value)
      return false;
  return true;
}

static bool becomes_true(const std::atomic<bool> &flag, int ms) {
  auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
  while (!flag && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return flag;
}

static int wrong;

static void require(bool right, const char *name, const char *otherwise) {
  if (!right) {
    printf("FAIL waits: %s: %s\n", name, otherwise);
    wrong++;
  }
}

// `effect`: whether the call's effect is visible; empty where the host cannot see it.
static void expect(const char *name, wait expected, std::function<int()> call, std::function<bool()> effect = {},
                   int result = 0) {
  std::atomic<bool> returned{false};
  int got = -1;
  bool seen = false;
  CUDA(cudaDeviceSynchronize());
  *gate = 0;
  std::thread caller([&] {
    if (device_gate)
      hold<<<1, 1>>>(device_gate);
    else
      CUDA(cudaLaunchHostFunc(0, hold_by_host, nullptr));
    got = call();
    seen = effect && effect();
    returned = true;
  });
  bool early = becomes_true(returned, expected == WAITS ? EARLY_MS : LATE_MS);
  *gate = 1;
  caller.join();
  require(early == (expected == RETURNS), name, early ? "returned before the kernel ahead of it" : "waited");
  require(got == result, name, cudaGetErrorName((cudaError_t)got));
  require(!effect || seen == (expected == WAITS), name, seen ? "its effect is visible too early" : "no effect");
  CUDA(cudaDeviceSynchronize());
  require(!effect || effect(), name, "no effect after synchronisation");
}

static void *driver(const char *name) {
  void *function = nullptr;
  cudaDriverEntryPointQueryResult found;
  CUDA(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found));
  EXPECT(found == cudaDriverEntryPointSuccess, "waits: no %s", name);
  return function;
}

static unsigned char *device, *device2, *pinned, *pinned2, *pageable, *pageable2;

static void fills() {
  auto pinned_holds_7 = [] { return holds(pinned, 7, MIB); };
  auto reset = [] { memset(pinned, 1, MIB); };
  expect("cudaMemset of device memory", RETURNS, [] { return cudaMemset(device, 7, MIB); });
  expect("cudaMemset2D of device memory", RETURNS, [] { return cudaMemset2D(device, KIB, 7, KIB, KIB); });
  reset();
  expect("cudaMemset of pinned memory", WAITS, [] { return cudaMemset(pinned, 7, MIB); }, pinned_holds_7);
  reset();
  expect(
      "cudaMemset of one pinned byte", WAITS, [] { return cudaMemset(pinned, 7, 1); },
      [] { return holds(pinned, 7, 1); });
  reset();
  expect("cudaMemset2D of pinned memory", WAITS, [] { return cudaMemset2D(pinned, KIB, 7, KIB, KIB); }, pinned_holds_7);
  reset();
  cudaPitchedPtr box = make_cudaPitchedPtr(pinned, KIB, KIB, KIB / 4);
  expect(
      "cudaMemset3D of pinned memory", WAITS, [&] { return cudaMemset3D(box, 7, make_cudaExtent(KIB, KIB / 4, 4)); },
      pinned_holds_7);
  reset();
  if (device_gate)
    expect(
        "cudaMemsetAsync of pinned memory", RETURNS, [] { return cudaMemsetAsync(pinned, 7, MIB, 0); }, pinned_holds_7);

  typedef int (*set8)(unsigned long long, unsigned char, size_t);
  typedef int (*set16)(unsigned long long, unsigned short, size_t);
  typedef int (*set32)(unsigned long long, unsigned, size_t);
  typedef int (*rows32)(unsigned long long, size_t, unsigned, size_t, size_t);
  auto address = (unsigned long long)pinned;
  reset();
  expect(
      "cuMemsetD8 of pinned memory", WAITS, [&] { return ((set8)driver("cuMemsetD8"))(address, 7, MIB); },
      pinned_holds_7);
  reset();
  expect(
      "cuMemsetD16 of pinned memory", WAITS, [&] { return ((set16)driver("cuMemsetD16"))(address, 0x0707, MIB / 2); },
      pinned_holds_7);
  reset();
  expect(
      "cuMemsetD32 of pinned memory", WAITS,
      [&] { return ((set32)driver("cuMemsetD32"))(address, 0x07070707, MIB / 4); }, pinned_holds_7);
  reset();
  expect(
      "cuMemsetD2D32 of pinned memory", WAITS,
      [&] { return ((rows32)driver("cuMemsetD2D32"))(address, KIB, 0x07070707, KIB / 4, KIB); }, pinned_holds_7);
}

static void copies_to_the_device() {
  for (size_t n : {(size_t)KIB, (size_t)64 * KIB, (size_t)MIB}) {
    std::string size = std::to_string(n) + " bytes";
    expect(("cudaMemcpy H2D pageable, " + size).c_str(), WAITS,
           [n] { return cudaMemcpy(device, pageable, n, cudaMemcpyHostToDevice); });
    expect(("cudaMemcpyAsync H2D pageable, " + size).c_str(), RETURNS,
           [n] { return cudaMemcpyAsync(device, pageable, n, cudaMemcpyHostToDevice, 0); });
    expect(("cudaMemcpyToSymbol, " + size).c_str(), WAITS, [n] { return cudaMemcpyToSymbol(symbol, pageable, n); });
  }
  expect("cudaMemcpy H2D pinned", WAITS, [] { return cudaMemcpy(device, pinned, MIB, cudaMemcpyHostToDevice); });
  if (device_gate) // without it, an earlier host function may write the source
    expect("cudaMemcpyAsync H2D pinned", RETURNS,
           [] { return cudaMemcpyAsync(device, pinned, MIB, cudaMemcpyHostToDevice, 0); });
  expect("cudaMemcpy2DAsync H2D pageable", RETURNS,
         [] { return cudaMemcpy2DAsync(device2, KIB, pageable, KIB, KIB, KIB, cudaMemcpyHostToDevice, 0); });
  expect("cudaMemcpy2D H2D pageable", WAITS,
         [] { return cudaMemcpy2D(device2, KIB, pageable, KIB, KIB, KIB, cudaMemcpyHostToDevice); });
}

static void copies_to_the_host() {
  CUDA(cudaMemset(device, 9, MIB));
  auto reset = [] {
    memset(pinned, 1, MIB);
    memset(pinned2, 9, MIB);
    memset(pageable, 1, MIB);
    memset(pageable2, 9, MIB);
  };
  auto pinned_holds_9 = [] { return holds(pinned, 9, MIB); };
  auto pageable_holds_9 = [] { return holds(pageable, 9, MIB); };
  struct {
    const char *name;
    wait expected;
    std::function<int()> call;
    bool pinned;
  } cases[] = {
      {"cudaMemcpy D2H pageable", WAITS, [] { return cudaMemcpy(pageable, device, MIB, cudaMemcpyDeviceToHost); },
       false},
      {"cudaMemcpy D2H pinned", WAITS, [] { return cudaMemcpy(pinned, device, MIB, cudaMemcpyDeviceToHost); }, true},
      {"cudaMemcpyAsync D2H pageable", WAITS,
       [] { return cudaMemcpyAsync(pageable, device, MIB, cudaMemcpyDeviceToHost, 0); }, false},
      {"cudaMemcpyAsync D2H pinned", RETURNS,
       [] { return cudaMemcpyAsync(pinned, device, MIB, cudaMemcpyDeviceToHost, 0); }, true},
      {"cudaMemcpy of kind D2D to pinned memory", WAITS,
       [] { return cudaMemcpy(pinned, device, MIB, cudaMemcpyDeviceToDevice); }, true},
      {"cudaMemcpy of kind Default to pinned memory", WAITS,
       [] { return cudaMemcpy(pinned, device, MIB, cudaMemcpyDefault); }, true},
      {"cuMemcpyDtoD to pinned memory", WAITS,
       [] {
         typedef int (*copy)(unsigned long long, unsigned long long, size_t);
         return ((copy)driver("cuMemcpyDtoD"))((unsigned long long)pinned, (unsigned long long)device, MIB);
       },
       true},
      {"cudaMemcpy H2H pageable", WAITS, [] { return cudaMemcpy(pageable, pageable2, MIB, cudaMemcpyHostToHost); },
       false},
      {"cudaMemcpy H2H pinned", WAITS, [] { return cudaMemcpy(pinned, pinned2, MIB, cudaMemcpyHostToHost); }, true},
      {"cudaMemcpyAsync H2H pageable", WAITS,
       [] { return cudaMemcpyAsync(pageable, pageable2, MIB, cudaMemcpyHostToHost, 0); }, false},
      {"cudaMemcpyAsync H2H pinned", WAITS,
       [] { return cudaMemcpyAsync(pinned, pinned2, MIB, cudaMemcpyHostToHost, 0); }, true},
      {"cudaMemcpy2D D2H pageable", WAITS,
       [] { return cudaMemcpy2D(pageable, KIB, device, KIB, KIB, KIB, cudaMemcpyDeviceToHost); }, false},
      {"cudaMemcpy2D D2D to pinned memory", WAITS,
       [] { return cudaMemcpy2D(pinned, KIB, device, KIB, KIB, KIB, cudaMemcpyDeviceToDevice); }, true},
      {"cudaMemcpy2DAsync D2H pinned", RETURNS,
       [] { return cudaMemcpy2DAsync(pinned, KIB, device, KIB, KIB, KIB, cudaMemcpyDeviceToHost, 0); }, true},
      {"cudaMemcpy3D D2D to pinned memory", WAITS,
       [] {
         cudaMemcpy3DParms p = {};
         p.srcPtr = make_cudaPitchedPtr(device, KIB, KIB, KIB / 4);
         p.dstPtr = make_cudaPitchedPtr(pinned, KIB, KIB, KIB / 4);
         p.extent = make_cudaExtent(KIB, KIB / 4, 4);
         p.kind = cudaMemcpyDeviceToDevice;
         return cudaMemcpy3D(&p);
       },
       true},
  };
  for (auto &c : cases) {
    if (!device_gate && c.pinned && c.expected == RETURNS)
      continue;
    reset();
    expect(c.name, c.expected, c.call, c.pinned ? std::function<bool()>(pinned_holds_9) : pageable_holds_9);
  }
  expect("cudaMemcpy D2D", RETURNS, [] { return cudaMemcpy(device2, device, MIB, cudaMemcpyDeviceToDevice); });
}

static void memory() {
  static void *block;
  size_t free_nbytes, total_nbytes;
  expect("cudaMalloc", RETURNS, [] { return cudaMalloc(&block, MIB); });
  expect("cudaFree", WAITS, [] { return cudaFree(block); });
  expect("cudaMallocHost", RETURNS, [] { return cudaMallocHost(&block, MIB); });
  expect("cudaFreeHost", WAITS, [] { return cudaFreeHost(block); });
  expect("cudaMallocAsync", RETURNS, [] { return cudaMallocAsync(&block, MIB, 0); });
  expect("cudaFreeAsync", RETURNS, [] { return cudaFreeAsync(block, 0); });
  block = aligned_alloc(4096, MIB);
  expect("cudaHostRegister", RETURNS, [] { return cudaHostRegister(block, MIB, 0); });
  expect("cudaHostUnregister", WAITS, [] { return cudaHostUnregister(block); });
  free(block);
  expect("cudaMemGetInfo", RETURNS, [&] { return cudaMemGetInfo(&free_nbytes, &total_nbytes); });
}

static void streams_and_events() {
  static cudaStream_t blocking, other, free_standing;
  static cudaEvent_t event;
  CUDA(cudaStreamCreate(&blocking));
  CUDA(cudaStreamCreateWithFlags(&free_standing, cudaStreamNonBlocking));
  expect("cudaStreamCreate", RETURNS, [] { return cudaStreamCreate(&other); });
  expect("synchronising a blocking stream never used", RETURNS, [] { return cudaStreamSynchronize(other); });
  expect("cudaStreamDestroy", RETURNS, [] { return cudaStreamDestroy(other); });
  expect("cudaEventCreate", RETURNS, [] { return cudaEventCreate(&event); });
  expect("cudaEventRecord", RETURNS, [] { return cudaEventRecord(event); });
  expect("cudaEventSynchronize of a recorded event", WAITS, [] {
    cudaEventRecord(event);
    return cudaEventSynchronize(event);
  });
  expect(
      "cudaEventQuery", RETURNS,
      [] {
        cudaEventRecord(event);
        return cudaEventQuery(event);
      },
      {}, cudaErrorNotReady);
  expect("cudaEventDestroy of a recorded event", RETURNS, [] { return cudaEventDestroy(event); });
  expect("launching in a blocking stream", RETURNS, [] {
    fill<<<1, 1, 0, blocking>>>(device, 7, 1);
    return cudaGetLastError();
  });
  expect("synchronising an idle blocking stream", RETURNS, [] { return cudaStreamSynchronize(blocking); });
  expect("synchronising an idle non-blocking stream", RETURNS, [] { return cudaStreamSynchronize(free_standing); });
  expect("synchronising a non-blocking stream with work", RETURNS, [] {
    fill<<<1, 1, 0, free_standing>>>(device, 7, 1);
    return cudaStreamSynchronize(free_standing);
  });
  CUDA(cudaMemcpyAsync(device, pinned, KIB, cudaMemcpyHostToDevice, blocking));
  CUDA(cudaStreamSynchronize(blocking));
  expect("synchronising a blocking stream again", RETURNS, [] { return cudaStreamSynchronize(blocking); });
  expect("cudaStreamQuery", RETURNS, [] { return cudaStreamQuery(0); }, {}, cudaErrorNotReady);
  expect("cudaStreamSynchronize", WAITS, [] { return cudaStreamSynchronize(0); });
  expect("cudaDeviceSynchronize", WAITS, [] { return cudaDeviceSynchronize(); });
  CUDA(cudaStreamDestroy(blocking));
  CUDA(cudaStreamDestroy(free_standing));
}

int main(int argc, char **argv) {
  vgt_parse(argc, argv, 1);
  CUDA(cudaMallocHost((void **)&gate, 64));
  int at_once = 0;
  CUDA(cudaDeviceGetAttribute(&at_once, cudaDevAttrConcurrentManagedAccess, 0));
  if (at_once)
    CUDA(cudaHostGetDevicePointer((void **)&device_gate, (void *)gate, 0));
  CUDA(cudaMalloc(&device, MIB));
  CUDA(cudaMalloc(&device2, MIB));
  CUDA(cudaMallocHost(&pinned, MIB));
  CUDA(cudaMallocHost(&pinned2, MIB));
  pageable = (unsigned char *)malloc(MIB);
  pageable2 = (unsigned char *)malloc(MIB);
  *gate = 1;
  if (device_gate)
    hold<<<1, 1>>>(device_gate); // load and compile now: the first launch of a kernel may block
  fill<<<1, 1>>>(device, 7, 1);
  CUDA(cudaDeviceSynchronize());

  fills();
  copies_to_the_device();
  copies_to_the_host();
  memory();
  streams_and_events();
  if (device_gate)
    expect(
        "a kernel that writes pinned memory", RETURNS,
        [] {
          memset(pinned, 1, KIB);
          fill<<<1, 64>>>(pinned, 7, KIB);
          return cudaGetLastError();
        },
        [] { return holds(pinned, 7, KIB); });
  expect("cudaFuncSetAttribute", RETURNS,
         [] { return cudaFuncSetAttribute(fill, cudaFuncAttributePreferredSharedMemoryCarveout, 50); });
  expect("cudaDeviceSetLimit of the printf buffer", RETURNS,
         [] { return cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 2 * MIB); });
  if (!wrong)
    printf("ok waits\n");
  return wrong != 0;
}
