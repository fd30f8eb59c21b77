/* Measures operations: with the host's CUPTI if it is installed (vgx_cuda_cupti.c), else with two events, recorded
 * before and behind the operation in its stream; the time between the two is the operation's. The overhead of an event
 * is measured in each context (the shortest time between two events with nothing between them) and subtracted. A
 * captured operation is not measured, as its events would be captured, too; a graph's launch is measured as a whole. A
 * recording of an event is measured like an operation.
 *
 * A reference relates event times to this machine's clock: an event that is recorded in a separate stream between two
 * readings of the clock, again each time records are requested. */
#define _GNU_SOURCE
#include "vgx_cuda_activity.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "vgw_clock.h"
#include "vgx_backend.h"
#include "vgx_cuda_cupti.h"

enum { CONTEXTS_MAX = 64, READINGS = 5, PAIRS = 16, OUTSTANDING_MAX = 1 << 18, NON_BLOCKING = 1, NUM_REGS = 4 };
enum { SHARED_SIZE_BYTES = 1, LOCAL_SIZE_BYTES = 3, REFERENCE_WAIT_NS = 100000000, CLOSE_NS = 3000 };

/* An operation that was submitted. */
struct timed {
  struct timed *next;
  struct place *place;
  uint32_t life; /* of the place when the events were created */
  CUevent begin, end;
  struct vgw_activity activity;
  char *name;
};

/* A context in which operations were measured. */
struct place {
  CUcontext context; /* NULL: the place is free */
  CUdevice device;
  uint32_t life;   /* changes when the context goes, and with it all its events */
  CUstream stream; /* in which `reference` is recorded */
  CUevent reference;
  uint64_t reference_ns; /* when `reference` completed, on this machine's clock */
  float overhead_ms;     /* time between two events with nothing between them */
  bool usable;
  struct timed *spare; /* unused entries, each with its two events */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* places, spares, the list */
static struct place places[CONTEXTS_MAX];
static struct timed *first, **last = &first;
static uint32_t outstanding;
static void (*put_activity)(const struct vgw_activity *activity, const char *name); /* atomic */
static _Thread_local uint64_t thread_correlation;
static struct vgx_backend real; /* the driver's own functions */
static CUresult (*get_current)(CUcontext *);
static CUresult (*get_device)(CUdevice *);
static bool has_cupti, by_cupti; /* the second is atomic: whether CUPTI measures now */
static unsigned measured_now;    /* atomic; VGW_MEASURE_* */

/* Record the reference event, and observe its completion between two close readings of the clock. False: the device
 * does not answer. */
static bool take_reference(struct place *place) {
  for (int i = 0; i < READINGS; i++) {
    CUresult result = real.cuEventRecordWithFlags(place->reference, place->stream, 0);
    uint64_t started = vgw_now_ns(), before = started, after = started;
    while (result == CUDA_SUCCESS && (result = real.cuEventQuery(place->reference)) == CUDA_ERROR_NOT_READY &&
           after - started < REFERENCE_WAIT_NS) {
      result = CUDA_SUCCESS;
      before = after;
      after = vgw_now_ns();
    }
    if (result != CUDA_SUCCESS)
      return false;
    after = vgw_now_ns();
    place->reference_ns = before + (after - before) / 2;
    if (after - before < CLOSE_NS)
      break;
  }
  return true;
}

static bool calibrate(struct place *place) {
  CUevent end;
  if (get_device(&place->device) || real.cuStreamCreateWithPriority(&place->stream, NON_BLOCKING, 0) ||
      real.cuEventCreate(&place->reference, 0) || real.cuEventCreate(&end, 0))
    return false;
  place->overhead_ms = 1e9f;
  for (int i = 0; i < PAIRS; i++) {
    float ms;
    if (real.cuEventRecordWithFlags(place->reference, place->stream, 0) ||
        real.cuEventRecordWithFlags(end, place->stream, 0) || real.cuEventSynchronize(end) ||
        real.cuEventElapsedTime_v2(&ms, place->reference, end))
      return false;
    place->overhead_ms = ms < place->overhead_ms ? ms : place->overhead_ms;
  }
  real.cuEventDestroy_v2(end);
  return take_reference(place);
}

/* The place of a context, added if it is new; NULL: the context cannot be measured. Under the lock. */
static struct place *place_of(CUcontext context) {
  struct place *unused = NULL, *place = places;
  for (; place < places + CONTEXTS_MAX && place->context != context; place++)
    if (!place->context && !unused)
      unused = place;
  if (place == places + CONTEXTS_MAX && unused) {
    place = unused;
    place->context = context;
    place->usable = calibrate(place);
  }
  return place < places + CONTEXTS_MAX && place->usable ? place : NULL;
}

/* An unused entry with events of the place's context; NULL: there is none. Under the lock. */
static struct timed *timed_create(struct place *place) {
  struct timed *t = place->spare;
  if (t) {
    place->spare = t->next;
    return t;
  }
  t = outstanding < OUTSTANDING_MAX ? calloc(1, sizeof *t) : NULL;
  if (!t)
    return NULL;
  t->place = place;
  t->life = place->life;
  if (real.cuEventCreate(&t->begin, 0) == CUDA_SUCCESS && real.cuEventCreate(&t->end, 0) == CUDA_SUCCESS)
    return t;
  free(t);
  return NULL;
}

/* Return an entry to the spares of its place. Under the lock, which also guards `outstanding`. */
static void timed_spare(struct timed *t) {
  outstanding--;
  free(t->name);
  if (t->life != t->place->life) { /* its context and events have been destroyed */
    free(t);
    return;
  }
  t->name = NULL;
  t->next = t->place->spare;
  t->place->spare = t;
}

/* Record an event before an operation. NULL: the operation is not measured. */
static struct timed *begin(CUstream stream, uint32_t kind) {
  CUcontext context = NULL;
  int status = 0;
  if (!thread_correlation || __atomic_load_n(&by_cupti, __ATOMIC_RELAXED) ||
      !__atomic_load_n(&put_activity, __ATOMIC_RELAXED) || get_current(&context) || !context ||
      real.cuStreamGetCaptureInfo_v2(stream, &status, NULL, NULL, NULL, NULL) || status)
    return NULL;
  pthread_mutex_lock(&lock);
  struct place *place = place_of(context);
  struct timed *t = place ? timed_create(place) : NULL;
  outstanding += t != NULL;
  pthread_mutex_unlock(&lock);
  if (!t)
    return NULL;
  t->activity = (struct vgw_activity){.correlation = thread_correlation, .kind = kind};
  if (real.cuEventRecordWithFlags(t->begin, stream, 0) == CUDA_SUCCESS)
    return t;
  pthread_mutex_lock(&lock);
  timed_spare(t);
  pthread_mutex_unlock(&lock);
  return NULL;
}

/* Record an event behind an operation. Returns `result`, the operation's own. */
static CUresult end(struct timed *t, CUstream stream, CUresult result) {
  if (!t)
    return result;
  bool kept = result == CUDA_SUCCESS && real.cuEventRecordWithFlags(t->end, stream, 0) == CUDA_SUCCESS;
  pthread_mutex_lock(&lock);
  if (kept) {
    t->next = NULL;
    *last = t;
    last = &t->next;
  } else {
    timed_spare(t);
  }
  pthread_mutex_unlock(&lock);
  return result;
}

/* --- the operations --- */

static void describe_kernel(struct timed *t, CUfunction f, const unsigned grid[3], const unsigned block[3],
                            unsigned shared_nbytes) {
  const char *name = NULL;
  CUfunction function = f;
  int value;
  struct vgw_activity *a = &t->activity;
  if ((!real.cuFuncGetName || real.cuFuncGetName(&name, f)) && real.cuKernelGetName &&
      !real.cuKernelGetName(&name, (CUkernel)f)) {
    if (!real.cuKernelGetFunction || real.cuKernelGetFunction(&function, (CUkernel)f))
      function = NULL;
  }
  t->name = strdup(name ? name : "(a kernel whose name this driver does not tell)");
  for (int i = 0; i < 3; i++) {
    a->grid[i] = grid[i];
    a->block[i] = block[i];
  }
  a->shared_dynamic_nbytes = shared_nbytes;
  if (function && !real.cuFuncGetAttribute(&value, NUM_REGS, function))
    a->registers = (uint32_t)value;
  if (function && !real.cuFuncGetAttribute(&value, SHARED_SIZE_BYTES, function))
    a->shared_static_nbytes = (uint32_t)value;
  if (function && !real.cuFuncGetAttribute(&value, LOCAL_SIZE_BYTES, function))
    a->local_nbytes = (uint32_t)value;
}

static CUresult launch(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                       unsigned shared_nbytes, CUstream stream, void **params, void **extra) {
  struct timed *t = begin(stream, VGW_ACTIVITY_KERNEL);
  if (t)
    describe_kernel(t, f, (unsigned[]){gx, gy, gz}, (unsigned[]){bx, by, bz}, shared_nbytes);
  return end(t, stream, real.cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared_nbytes, stream, params, extra));
}

static CUresult launch_ex(const CUlaunchConfig *c, CUfunction f, void **params, void **extra) {
  struct timed *t = begin(c->hStream, VGW_ACTIVITY_KERNEL);
  if (t)
    describe_kernel(t, f, (unsigned[]){c->gridDimX, c->gridDimY, c->gridDimZ},
                    (unsigned[]){c->blockDimX, c->blockDimY, c->blockDimZ}, c->sharedMemBytes);
  return end(t, c->hStream, real.cuLaunchKernelEx(c, f, params, extra));
}

static CUresult record(CUevent event, CUstream stream, unsigned flags) {
  bool wanted = __atomic_load_n(&measured_now, __ATOMIC_RELAXED) & VGW_MEASURE_EVENTS;
  struct timed *t = wanted ? begin(stream, VGW_ACTIVITY_EVENT) : NULL;
  return end(t, stream, real.cuEventRecordWithFlags(event, stream, flags));
}

static CUresult launch_graph(CUgraphExec graph, CUstream stream) {
  struct timed *t = begin(stream, VGW_ACTIVITY_GRAPH);
  if (t)
    t->activity.of_graph = 1;
  return end(t, stream, real.cuGraphLaunch(graph, stream));
}

static struct timed *begin_copy(CUstream stream, bool from_host, bool to_host, uint64_t nbytes) {
  struct timed *t = begin(stream, VGW_ACTIVITY_COPY);
  if (t) {
    t->activity.nbytes = nbytes;
    t->activity.source = from_host ? VGW_ACTIVITY_HOST : VGW_ACTIVITY_DEVICE;
    t->activity.destination = to_host ? VGW_ACTIVITY_HOST : VGW_ACTIVITY_DEVICE;
  }
  return t;
}

static CUresult copy_to_device(CUdeviceptr to, const void *from, size_t nbytes, CUstream stream) {
  struct timed *t = begin_copy(stream, true, false, nbytes);
  return end(t, stream, real.cuMemcpyHtoDAsync_v2(to, from, nbytes, stream));
}

static CUresult copy_to_host(void *to, CUdeviceptr from, size_t nbytes, CUstream stream) {
  struct timed *t = begin_copy(stream, false, true, nbytes);
  return end(t, stream, real.cuMemcpyDtoHAsync_v2(to, from, nbytes, stream));
}

static CUresult copy_on_device(CUdeviceptr to, CUdeviceptr from, size_t nbytes, CUstream stream) {
  struct timed *t = begin_copy(stream, false, false, nbytes);
  return end(t, stream, real.cuMemcpyDtoDAsync_v2(to, from, nbytes, stream));
}

static CUresult copy_rectangle(const CUDA_MEMCPY2D *c, CUstream stream) {
  struct timed *t = begin_copy(stream, c->srcMemoryType == CU_MEMORYTYPE_HOST, c->dstMemoryType == CU_MEMORYTYPE_HOST,
                               c->WidthInBytes * c->Height);
  return end(t, stream, real.cuMemcpy2DAsync_v2(c, stream));
}

static CUresult copy_box(const CUDA_MEMCPY3D *c, CUstream stream) {
  struct timed *t = begin_copy(stream, c->srcMemoryType == CU_MEMORYTYPE_HOST, c->dstMemoryType == CU_MEMORYTYPE_HOST,
                               c->WidthInBytes * c->Height * c->Depth);
  return end(t, stream, real.cuMemcpy3DAsync_v2(c, stream));
}

static struct timed *begin_fill(CUstream stream, uint32_t value, uint64_t nbytes) {
  struct timed *t = begin(stream, VGW_ACTIVITY_FILL);
  if (t) {
    t->activity.value = value;
    t->activity.nbytes = nbytes;
  }
  return t;
}

#define FILL(name, type, element_nbytes)                                                                               \
  static CUresult name(CUdeviceptr to, type value, size_t count, CUstream stream) {                                    \
    struct timed *t = begin_fill(stream, value, count * (element_nbytes));                                             \
    return end(t, stream, real.cuMemset##name##Async(to, value, count, stream));                                       \
  }
#define FILL_ROWS(name, type, element_nbytes)                                                                          \
  static CUresult name(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height, CUstream stream) {       \
    struct timed *t = begin_fill(stream, value, width * height * (element_nbytes));                                    \
    return end(t, stream, real.cuMemset##name##Async(to, pitch, value, width, height, stream));                        \
  }
FILL(D8, unsigned char, 1)
FILL(D16, unsigned short, 2)
FILL(D32, unsigned int, 4)
FILL_ROWS(D2D8, unsigned char, 1)
FILL_ROWS(D2D16, unsigned short, 2)
FILL_ROWS(D2D32, unsigned int, 4)

#define MEASURED(X)                                                                                                    \
  X(cuLaunchKernel, launch)                                                                                            \
  X(cuLaunchKernelEx, launch_ex)                                                                                       \
  X(cuGraphLaunch, launch_graph)                                                                                       \
  X(cuEventRecordWithFlags, record)                                                                                    \
  X(cuMemcpyHtoDAsync_v2, copy_to_device)                                                                              \
  X(cuMemcpyDtoHAsync_v2, copy_to_host)                                                                                \
  X(cuMemcpyDtoDAsync_v2, copy_on_device)                                                                              \
  X(cuMemcpy2DAsync_v2, copy_rectangle)                                                                                \
  X(cuMemcpy3DAsync_v2, copy_box)                                                                                      \
  X(cuMemsetD8Async, D8)                                                                                               \
  X(cuMemsetD16Async, D16)                                                                                             \
  X(cuMemsetD32Async, D32)                                                                                             \
  X(cuMemsetD2D8Async, D2D8)                                                                                           \
  X(cuMemsetD2D16Async, D2D16)                                                                                         \
  X(cuMemsetD2D32Async, D2D32)

/* --- for the executor --- */

static CUresult measure(void (*put)(const struct vgw_activity *activity, const char *name), unsigned *what) {
  unsigned by_events = *what & VGW_MEASURE_EVENTS;
  if (has_cupti)
    __atomic_store_n(&by_cupti, vgx_cuda_cupti_measure(put, what) && put, __ATOMIC_RELEASE);
  if (!by_cupti)
    *what = by_events;
  __atomic_store_n(&measured_now, *what, __ATOMIC_RELAXED);
  __atomic_store_n(&put_activity, put, __ATOMIC_RELEASE);
  return CUDA_SUCCESS;
}

static void correlate(uint64_t correlation) {
  if (__atomic_load_n(&by_cupti, __ATOMIC_RELAXED))
    vgx_cuda_cupti_correlate(correlation);
  thread_correlation = correlation;
}

/* Read an operation's times. Under the lock; the context is current. False: the operation is not done yet. */
static bool read_out(struct timed *t, void (*put)(const struct vgw_activity *, const char *)) {
  float ago_ms, took_ms;
  CUresult result = real.cuEventQuery(t->end);
  if (result == CUDA_ERROR_NOT_READY)
    return false;
  if (result == CUDA_SUCCESS && !real.cuEventElapsedTime_v2(&took_ms, t->begin, t->end) &&
      !real.cuEventElapsedTime_v2(&ago_ms, t->begin, t->place->reference)) {
    took_ms = took_ms > t->place->overhead_ms ? took_ms - t->place->overhead_ms : 0;
    t->activity.start_ns = t->place->reference_ns - (uint64_t)(int64_t)((double)ago_ms * 1e6);
    t->activity.end_ns = t->activity.start_ns + (uint64_t)((double)took_ms * 1e6);
    put(&t->activity, t->name);
  }
  return true;
}

/* Deliver the records of the place's operations that have ended; with `all`, drop the other operations, which cannot be
 * read once the context is destroyed. The context is current. Under the lock. */
static void read_place(struct place *place, bool all) {
  void (*put)(const struct vgw_activity *, const char *) = __atomic_load_n(&put_activity, __ATOMIC_ACQUIRE);
  bool answers = put && take_reference(place);
  for (struct timed **link = &first; *link;) {
    struct timed *t = *link;
    bool ended = t->place == place && answers && read_out(t, put);
    if (t->place != place || (!ended && !all)) {
      link = &t->next;
      continue;
    }
    if (!ended && put)
      put(NULL, NULL);
    *link = t->next;
    timed_spare(t);
  }
  last = &first;
  while (*last)
    last = &(*last)->next;
}

static void measured(void) {
  if (__atomic_load_n(&by_cupti, __ATOMIC_RELAXED)) {
    vgx_cuda_cupti_flush();
    return;
  }
  CUcontext before = NULL;
  if (!__atomic_load_n(&put_activity, __ATOMIC_RELAXED) || get_current(&before))
    return;
  pthread_mutex_lock(&lock);
  for (struct place *place = places; place < places + CONTEXTS_MAX; place++)
    if (place->usable && !real.cuCtxSetCurrent(place->context))
      read_place(place, false);
  pthread_mutex_unlock(&lock);
  real.cuCtxSetCurrent(before);
}

/* Read a context's operations and free its place, because the context may now be destroyed and a new one may get its
 * address. If it is not destroyed, it gets a new place later. Under the lock. */
static void forget(struct place *place) {
  if (place->usable && !real.cuCtxSetCurrent(place->context))
    read_place(place, true);
  while (place->spare) {
    struct timed *t = place->spare;
    place->spare = t->next;
    real.cuEventDestroy_v2(t->begin);
    real.cuEventDestroy_v2(t->end);
    free(t);
  }
  if (place->usable) {
    real.cuEventDestroy_v2(place->reference);
    real.cuStreamDestroy_v2(place->stream);
  }
  *place = (struct place){.life = place->life + 1};
}

/* Forget the place of `context`; NULL: the places of all contexts of `device`. */
static void forget_places(CUcontext context, CUdevice device) {
  CUcontext before = NULL;
  pthread_mutex_lock(&lock);
  bool known = !get_current(&before);
  for (struct place *place = places; place < places + CONTEXTS_MAX; place++)
    if (place->context && (context ? place->context == context : place->device == device))
      forget(place);
  if (known)
    real.cuCtxSetCurrent(before);
  pthread_mutex_unlock(&lock);
}

static CUresult destroy_context(CUcontext context) {
  forget_places(context, 0);
  return real.cuCtxDestroy_v2(context);
}

static CUresult release_primary(CUdevice device) {
  forget_places(NULL, device);
  return real.cuDevicePrimaryCtxRelease_v2(device);
}

static CUresult reset_primary(CUdevice device) {
  forget_places(NULL, device);
  return real.cuDevicePrimaryCtxReset_v2(device);
}

void vgx_cuda_activity_resolve(void *library, struct vgx_backend *backend) {
  get_current = (__typeof__(get_current))dlsym(library, "cuCtxGetCurrent");
  get_device = (__typeof__(get_device))dlsym(library, "cuCtxGetDevice");
  real = *backend;
  has_cupti = vgx_cuda_cupti_open();
  if (!get_current || !get_device || !real.cuStreamGetCaptureInfo_v2 || !real.cuEventElapsedTime_v2)
    return;
  backend->measure = measure;
  backend->correlate = correlate;
  backend->measured = measured;
#define REPLACE(name, function)                                                                                        \
  if (real.name)                                                                                                       \
    backend->name = function;
  MEASURED(REPLACE)
  REPLACE(cuCtxDestroy_v2, destroy_context)
  REPLACE(cuDevicePrimaryCtxRelease_v2, release_primary)
  REPLACE(cuDevicePrimaryCtxReset_v2, reset_primary)
}
