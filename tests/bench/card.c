/* A fake libcuda, for measuring the overhead of remoting on a machine without a card: each call takes the time that it
 * takes on a card (`busy`, `rest`) and has done its work on the CPU when it returns. It supports the calls that
 * tests/bench/driver.c and vgb_calls.c make, knows their kernels by name and validates next to nothing.
 *
 * Times are those of an H100 (docs/real-gpu.md); -D overrides them. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#ifndef LAUNCH_NS
#define LAUNCH_NS 3700
#endif
#ifndef EVENT_NS
#define EVENT_NS 230
#endif
#ifndef LOAD_MS
#define LOAD_MS 0 /* time that dlopen takes; unknown for NVIDIA's driver */
#endif
#ifndef INIT_MS
#define INIT_MS 60
#endif
#ifndef CONTEXT_MS
#define CONTEXT_MS 80
#endif

enum { INVALID_VALUE = 1, NOT_FOUND = 500, MEMORY_NBYTES = 1 << 30, PAGE_NBYTES = 4096, HEADER_NBYTES = 64 };

struct kernel {
  const char *name;
  unsigned sizes[3], count;
};
struct stream {
  unsigned launches; /* launches captured so far */
  int capturing;
};

static const struct kernel kernels[] = {{"add_one", {8}, 1}, {"touch", {8, 8, 4}, 3}};
static struct stream legacy;
static int context, module, event;

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void busy(int64_t ns) {
  for (int64_t until = now_ns() + ns; now_ns() < until;)
    __builtin_ia32_pause();
}

static void rest(long ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL); }

/* --- devices and contexts --- */

__attribute__((constructor)) static void load(void) { rest(LOAD_MS); }

int cuInit(unsigned flags) {
  static atomic_flag done = ATOMIC_FLAG_INIT;
  if (!atomic_flag_test_and_set(&done))
    rest(INIT_MS);
  return flags ? INVALID_VALUE : 0;
}

int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuDeviceGetCount(int *count) { return *count = 1, 0; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, ordinal ? INVALID_VALUE : 0; }
int cuDeviceGetName(char *name, int nbytes, int device) { return snprintf(name, (size_t)nbytes, "bench"), device; }
int cuDeviceGetUuid(char *uuid, int device) { return memset(uuid, 7, 16), device; }
int cuDeviceGetPCIBusId(char *id, int nbytes, int device) {
  return snprintf(id, (size_t)nbytes, "0000:07:00.0"), device;
}
int cuDeviceTotalMem_v2(size_t *nbytes, int device) { return *nbytes = MEMORY_NBYTES, device; }

int cuDeviceGetAttribute(int *value, int attribute, int device) {
  enum { CLOCK_RATE = 13, MULTIPROCESSORS = 16, MAJOR = 75, MINOR = 76 };
  *value = attribute == MULTIPROCESSORS ? 132 : attribute == MAJOR ? 9 : attribute == MINOR ? 0 : 1024;
  return device;
}

int cuDevicePrimaryCtxRetain(void **made, int device) {
  static atomic_flag done = ATOMIC_FLAG_INIT;
  if (!atomic_flag_test_and_set(&done))
    rest(CONTEXT_MS);
  return *made = &context, device;
}

int cuDevicePrimaryCtxRelease_v2(int device) { return device; }
int cuCtxSetCurrent(void *current) { return current && current != &context; }
int cuCtxSynchronize(void) { return 0; }
int cuCtxGetStreamPriorityRange(int *least, int *greatest) { return *least = 0, *greatest = -5, 0; }
int cuCtxGetLimit(size_t *value, int limit) { return *value = 1024, limit ? 0 : 0; }
int cuMemGetAllocationGranularity(size_t *nbytes, const void *prop, int option) {
  return *nbytes = 2 << 20, prop && option >= 0 ? 0 : INVALID_VALUE;
}
int cuGetExportTable(void **table, const void *uuid) { return *table = NULL, uuid ? NOT_FOUND : INVALID_VALUE; }

/* --- memory: host memory stands for device memory --- */

int cuMemAlloc_v2(uint64_t *address, size_t nbytes) {
  char *block = mmap(NULL, nbytes + PAGE_NBYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED)
    return 2;
  *(size_t *)block = nbytes + PAGE_NBYTES;
  *address = (uintptr_t)block + PAGE_NBYTES;
  return 0;
}

int cuMemFree_v2(uint64_t address) {
  char *block = (char *)(uintptr_t)address - PAGE_NBYTES;
  return munmap(block, *(size_t *)block) ? INVALID_VALUE : 0;
}

int cuMemGetInfo_v2(size_t *available, size_t *total) {
  return *available = MEMORY_NBYTES - (64 << 20), *total = MEMORY_NBYTES, 0;
}
int cuMemHostAlloc(void **block, size_t nbytes, unsigned flags) {
  return *block = malloc(nbytes), flags || *block ? 0 : 2;
}
int cuMemAllocHost_v2(void **block, size_t nbytes) { return cuMemHostAlloc(block, nbytes, 0); }
int cuMemHostRegister_v2(void *block, size_t nbytes, unsigned flags) { return !block || !nbytes || flags > 15; }
int cuMemHostUnregister(void *block) { return !block; }
int cuPointerGetAttribute(void *data, int attribute, uint64_t address) {
  return *(uint32_t *)data = 2, attribute && address ? 0 : INVALID_VALUE;
}

static int copy(uint64_t to, uint64_t from, size_t nbytes) {
  return memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, nbytes), 0;
}
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t nbytes) { return copy(to, (uintptr_t)from, nbytes); }
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t nbytes) { return copy((uintptr_t)to, from, nbytes); }
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t nbytes, void *s) {
  return s == &context ? INVALID_VALUE : cuMemcpyHtoD_v2(to, from, nbytes);
}
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t nbytes, void *s) {
  return s == &context ? INVALID_VALUE : cuMemcpyDtoH_v2(to, from, nbytes);
}

/* --- modules and launches --- */

int cuModuleLoadData(void **made, const void *image) { return *made = &module, image ? 0 : INVALID_VALUE; }
int cuModuleGetFunctionCount(unsigned *count, void *of) { return *count = 2, of != &module; }
int cuModuleUnload(void *of) { return of != &module; }

int cuModuleGetFunction(const struct kernel **kernel, void *of, const char *name) {
  for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
    if (of == &module && !strcmp(kernels[i].name, name))
      return *kernel = &kernels[i], 0;
  return NOT_FOUND;
}

int cuFuncGetAttribute(int *value, int attribute, const struct kernel *kernel) {
  return *value = attribute ? 0 : 1024, kernel ? 0 : INVALID_VALUE;
}

int cuFuncGetParamInfo(const struct kernel *kernel, size_t index, size_t *offset, size_t *nbytes) {
  if (index >= kernel->count)
    return INVALID_VALUE;
  for (size_t i = *offset = 0; i < index; i++)
    *offset += kernel->sizes[i];
  return *nbytes = kernel->sizes[index], 0;
}

int cuLaunchKernel(const struct kernel *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared_nbytes, struct stream *stream, void **params, void **extra) {
  if (!stream)
    stream = &legacy;
  if (!gx || !gy || !gz || !bx || !by || !bz || shared_nbytes || (!params && !extra))
    return INVALID_VALUE;
  busy(LAUNCH_NS);
  if (stream->capturing)
    return stream->launches++, 0;
  uint64_t first;
  memcpy(&first, params ? params[0] : extra[1], sizeof first);
  if (kernel == kernels)
    atomic_fetch_add((_Atomic uint32_t *)(uintptr_t)first, 1);
  return 0;
}

/* --- streams, events, graphs --- */

int cuStreamCreate(struct stream **stream, unsigned flags) {
  return *stream = calloc(1, sizeof **stream), *stream ? 0 : (int)flags;
}
int cuStreamCreateWithPriority(struct stream **stream, unsigned flags, int priority) {
  return priority > 0 ? INVALID_VALUE : cuStreamCreate(stream, flags);
}
int cuStreamDestroy_v2(struct stream *stream) { return free(stream), 0; }
int cuStreamSynchronize(struct stream *stream) { return stream && stream->capturing; }
int cuStreamQuery(struct stream *stream) { return stream && stream->capturing; }
int cuStreamWaitEvent(struct stream *stream, void *of, unsigned flags) {
  return busy(EVENT_NS), stream && stream->capturing ? 1 : of != &event || flags > 1;
}
int cuStreamWriteValue32_v2(struct stream *stream, uint64_t address, unsigned value, unsigned flags) {
  if (flags || (stream && stream->capturing))
    return INVALID_VALUE;
  return atomic_store_explicit((_Atomic uint32_t *)(uintptr_t)address, value, memory_order_release), 0;
}
int cuLaunchHostFunc(struct stream *stream, void (*run)(void *), void *argument) {
  return stream && stream->capturing ? INVALID_VALUE : (run(argument), 0);
}
int cuEventCreate(void **made, unsigned flags) { return *made = &event, flags > 7; }
int cuEventDestroy_v2(void *of) { return of != &event; }
int cuEventRecordWithFlags(void *of, struct stream *stream, unsigned flags) {
  return busy(EVENT_NS), stream && stream->capturing ? 1 : of != &event || flags > 1;
}
int cuEventRecord(void *of, struct stream *stream) { return cuEventRecordWithFlags(of, stream, 0); }
int cuEventSynchronize(void *of) { return of != &event; }
int cuEventQuery(void *of) { return of != &event; }

int cuStreamBeginCapture_v2(struct stream *stream, int mode) {
  return stream->capturing = 1, stream->launches = 0, mode > 2;
}
int cuStreamEndCapture(struct stream *stream, unsigned **graph) {
  stream->capturing = 0;
  return *graph = malloc(sizeof **graph), **graph = stream->launches, 0;
}
int cuGraphInstantiateWithFlags(unsigned **made, unsigned *graph, unsigned long long flags) {
  return *made = malloc(sizeof **made), **made = *graph, flags > 8;
}
int cuGraphLaunch(unsigned *graph, struct stream *stream) {
  return busy(*graph * INT64_C(1000)), stream && stream->capturing;
}
