/* The host's CUPTI, if it is installed: exact times, and each node of a graph. The library is opened together with the
 * driver, since the worker may open no files later; it is not used until a client profiles.
 *
 * The correlations of requests are CUPTI's external correlation ids: for each such id, a record of CUPTI relates
 * CUPTI's own number of the driver call to the client's number (`known`). Device records that arrive before that record
 * wait.
 *
 * Records have the layout that the guest's libcupti writes; those of CUPTI 12 begin like those of CUPTI 13. */
#include "vgx_cuda_cupti.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cupti/13/vgs_cupti_layout.h"
#include "vgw_clock.h"

enum { MEMCPY = 1, MEMSET = 2, DRIVER = 4, KERNEL = 10, CUDA_EVENT = 36, EXTERNAL = 39, GRAPH = 51, CUSTOM0 = 3 };
enum { HTOD = 1, DTOH = 2, HTOH = 9, BUFFER_NBYTES = 1 << 20, KNOWN = 1 << 20, WAITING_MAX = 1 << 16 };

static struct {
  int (*register_callbacks)(void (*)(uint8_t **, size_t *, size_t *),
                            void (*)(void *, uint32_t, uint8_t *, size_t, size_t));
  int (*register_timestamp)(uint64_t (*)(void));
  int (*enable)(uint32_t kind);
  int (*disable)(uint32_t kind);
  int (*flush)(uint32_t flag);
  int (*next)(uint8_t *buffer, size_t valid, void **record);
  int (*push)(uint32_t kind, uint64_t id);
  int (*pop)(uint32_t kind, uint64_t *id);
  int (*version)(uint32_t *version);
  int (*time_events)(uint8_t enable); /* NULL in CUPTI 12, which times them unasked since 12.8 */
} cupti;

struct known {
  uint32_t call; /* CUPTI's number of the driver call */
  uint64_t correlation;
};

struct waiting {
  uint32_t call;
  struct vgw_activity activity;
  const char *name; /* owned by CUPTI, never freed */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the variables below */
static void (*put_activity)(const struct vgw_activity *activity, const char *name);
static struct known *known; /* KNOWN entries, indexed by CUPTI's number modulo KNOWN */
static struct waiting *waiting;
static uint32_t waiting_count;

bool vgx_cuda_cupti_open(void) {
  static const char *const names[] = {
      "libcupti.so.13",
      "libcupti.so.12",
      "/usr/local/cuda/lib64/libcupti.so",
      "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so",
  };
  void *library = NULL;
  for (size_t i = 0; i < sizeof names / sizeof names[0] && !library; i++)
    library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return false;
#define RESOLVE(member, name) cupti.member = (__typeof__(cupti.member))dlsym(library, name)
  RESOLVE(register_callbacks, "cuptiActivityRegisterCallbacks");
  RESOLVE(register_timestamp, "cuptiActivityRegisterTimestampCallback");
  RESOLVE(enable, "cuptiActivityEnable");
  RESOLVE(disable, "cuptiActivityDisable");
  RESOLVE(flush, "cuptiActivityFlushAll");
  RESOLVE(next, "cuptiActivityGetNextRecord");
  RESOLVE(push, "cuptiActivityPushExternalCorrelationId");
  RESOLVE(pop, "cuptiActivityPopExternalCorrelationId");
  RESOLVE(version, "cuptiGetVersion");
  RESOLVE(time_events, "cuptiActivityEnableCudaEventDeviceTimestamps");
  return cupti.register_callbacks && cupti.register_timestamp && cupti.enable && cupti.disable && cupti.flush &&
         cupti.next && cupti.push && cupti.pop;
}

static void request(uint8_t **buffer, size_t *nbytes, size_t *most) {
  *buffer = aligned_alloc(64, BUFFER_NBYTES);
  *nbytes = *buffer ? BUFFER_NBYTES : 0;
  *most = 0;
}

/* Put the record if the correlation of its call is known. Under the lock. */
static bool put_known(uint32_t call, struct vgw_activity *activity, const char *name) {
  const struct known *found = known ? &known[call % KNOWN] : NULL;
  if (!found || found->call != call || !found->correlation)
    return false;
  activity->correlation = found->correlation;
  if (put_activity)
    put_activity(activity, name);
  return true;
}

static void take(uint32_t call, struct vgw_activity activity, const char *name) {
  if (put_known(call, &activity, name))
    return;
  if (waiting_count < WAITING_MAX)
    waiting[waiting_count++] = (struct waiting){call, activity, name};
  else if (put_activity)
    put_activity(NULL, NULL);
}

static void take_kernel(const struct vgs_cupti_Kernel *k) {
  struct vgw_activity a = {.kind = VGW_ACTIVITY_KERNEL,
                           .start_ns = k->start,
                           .end_ns = k->end,
                           .grid = {k->gridX, k->gridY, k->gridZ},
                           .block = {k->blockX, k->blockY, k->blockZ},
                           .shared_static_nbytes = k->staticSharedMemory,
                           .shared_dynamic_nbytes = k->dynamicSharedMemory,
                           .local_nbytes = k->localMemoryPerThread,
                           .registers = k->registersPerThread,
                           .graph_node = k->graphNodeId,
                           .of_graph = k->graphId != 0};
  take(k->correlationId, a, (const char *)(uintptr_t)k->name);
}

static void take_copy(const struct vgs_cupti_Memcpy *c) {
  bool from_host = c->copyKind == HTOD || c->copyKind == HTOH, to_host = c->copyKind == DTOH || c->copyKind == HTOH;
  struct vgw_activity a = {.kind = VGW_ACTIVITY_COPY,
                           .start_ns = c->start,
                           .end_ns = c->end,
                           .nbytes = c->bytes,
                           .source = from_host ? VGW_ACTIVITY_HOST : VGW_ACTIVITY_DEVICE,
                           .destination = to_host ? VGW_ACTIVITY_HOST : VGW_ACTIVITY_DEVICE,
                           .graph_node = c->graphNodeId,
                           .of_graph = c->graphId != 0};
  take(c->correlationId, a, NULL);
}

static void take_fill(const struct vgs_cupti_Memset *f) {
  struct vgw_activity a = {.kind = VGW_ACTIVITY_FILL,
                           .start_ns = f->start,
                           .end_ns = f->end,
                           .nbytes = f->bytes,
                           .value = f->value,
                           .graph_node = f->graphNodeId,
                           .of_graph = f->graphId != 0};
  take(f->correlationId, a, NULL);
}

static void take_graph(const struct vgs_cupti_GraphTrace *g) {
  struct vgw_activity a = {.kind = VGW_ACTIVITY_GRAPH, .start_ns = g->start, .end_ns = g->end, .of_graph = 1};
  take(g->correlationId, a, NULL);
}

static void take_event(const struct vgs_cupti_CudaEvent *e) {
  struct vgw_activity a = {.kind = VGW_ACTIVITY_EVENT, .start_ns = e->deviceTimestamp, .end_ns = e->deviceTimestamp};
  take(e->correlationId, a, NULL);
}

static void take_external(const struct vgs_cupti_ExternalCorrelation *e) {
  if (e->externalKind == CUSTOM0)
    known[e->correlationId % KNOWN] = (struct known){e->correlationId, e->externalId};
}

/* Read only the members that records of both major versions have: an older CUPTI writes shorter records. */
static void complete(void *context, uint32_t stream, uint8_t *buffer, size_t nbytes, size_t valid) {
  (void)context, (void)stream, (void)nbytes;
  pthread_mutex_lock(&lock);
  for (void *record = NULL; known && valid && cupti.next(buffer, valid, &record) == 0;) {
    uint32_t kind;
    memcpy(&kind, record, sizeof kind);
    if (kind == KERNEL)
      take_kernel(record);
    else if (kind == MEMCPY)
      take_copy(record);
    else if (kind == MEMSET)
      take_fill(record);
    else if (kind == GRAPH)
      take_graph(record);
    else if (kind == CUDA_EVENT)
      take_event(record);
    else if (kind == EXTERNAL)
      take_external(record);
  }
  uint32_t left = 0;
  for (uint32_t i = 0; i < waiting_count; i++)
    if (!put_known(waiting[i].call, &waiting[i].activity, waiting[i].name))
      waiting[left++] = waiting[i];
  waiting_count = left;
  pthread_mutex_unlock(&lock);
  free(buffer);
}

static void disable_all(void) {
  static const uint32_t kinds[] = {KERNEL, MEMCPY, MEMSET, EXTERNAL, DRIVER, GRAPH, CUDA_EVENT};
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
    cupti.disable(kinds[i]);
}

/* CUPTI before 12.8 reports no times of events. */
static bool enable_events(void) {
  enum { OF_12_8 = 26 };
  uint32_t version = 0;
  if (!cupti.version || cupti.version(&version) || version < OF_12_8 || (cupti.time_events && cupti.time_events(1)))
    return false;
  return !cupti.enable(CUDA_EVENT);
}

static bool enable_all(unsigned *what) {
  if (cupti.register_timestamp(vgw_now_ns) || cupti.register_callbacks(request, complete))
    return false;
  if (*what & VGW_MEASURE_NODES)
    cupti.disable(GRAPH);
  else if (cupti.enable(GRAPH))
    *what |= VGW_MEASURE_NODES; /* this version of CUPTI measures graphs only node by node */
  if (!(*what & VGW_MEASURE_EVENTS))
    cupti.disable(CUDA_EVENT);
  else if (!enable_events())
    *what &= ~(unsigned)VGW_MEASURE_EVENTS;
  if (!cupti.enable(KERNEL) && !cupti.enable(MEMCPY) && !cupti.enable(MEMSET) && !cupti.enable(EXTERNAL) &&
      !cupti.enable(DRIVER)) /* external correlation is recorded beside calls */
    return true;
  disable_all();
  return false;
}

bool vgx_cuda_cupti_measure(void (*put)(const struct vgw_activity *activity, const char *name), unsigned *what) {
  if (!put) {
    disable_all();
    cupti.flush(0);
  }
  pthread_mutex_lock(&lock);
  put_activity = put;
  known = known ? known : calloc(KNOWN, sizeof *known);
  waiting = waiting ? waiting : calloc(WAITING_MAX, sizeof *waiting);
  bool ready = known && waiting;
  pthread_mutex_unlock(&lock);
  return !put || (ready && enable_all(what));
}

void vgx_cuda_cupti_correlate(uint64_t correlation) {
  if (correlation)
    cupti.push(CUSTOM0, correlation);
  else
    cupti.pop(CUSTOM0, NULL);
}

void vgx_cuda_cupti_flush(void) { cupti.flush(0); }
