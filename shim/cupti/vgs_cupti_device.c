/* The worker's record says what the device did and when; the client knows in which context and stream, by the number
 * that the call's records carried: a place in `calls`, and the correlation. */
#include "vgs_cupti_device.h"
#include "vgs_cupti_buffer.h"
#include "vgs_cupti_clock.h"
#include "vgs_cupti_event.h"
#include "vgs_cupti_layout.h"
#include "vgs_cupti_result.h"
#include "vgs_cupti_state.h"
#include "vgs_log.h"
#include <stdlib.h>
#include <string.h>

enum { CALLS = 1 << 20, DRAIN_CALLS = 1 << 13, BATCH = 8192, NAMES_MAX = 1 << 16 };

/* A call that has submitted work. */
struct submitted {
  uint32_t correlation, context, stream;
  uint32_t object; /* an executable graph's or an event's number */
  uint16_t device;
  uint8_t what;   /* vgs_cupti_class */
  uint8_t memory; /* a copy's end in host memory: VGS_MEMORY_KIND_* */
  uint8_t async;
  union {
    struct vgs_context_facts ends[2]; /* a copy between contexts: destination, source */
    uint64_t sync_id;                 /* an event's */
  };
};

static struct submitted *calls; /* CALLS of them, by place modulo CALLS; zeroed memory that costs nothing until used */
static uint64_t call_count;     /* atomic */
static uint64_t drained_at;     /* atomic; call_count at the last drain */
static uint32_t measuring;      /* atomic; the session's epoch, and what was asked for << 16; 0: not measuring */
static unsigned measured_what;  /* atomic; VGW_MEASURE_* */
static bool not_supported;      /* atomic; the host cannot measure */

/* Names by the worker's ids; texts are never freed: records point at them. Under `draining`. */
static const char **names;
static uint32_t name_count, names_of; /* names_of: the epoch */

void vgs_cupti_reset_calls(void) {
  calls = NULL;
  call_count = drained_at = 0;
  measuring = 0;
}

/* Start measuring what is wanted in the worker, once in each session. */
static bool measure(const struct vgs_profiling *driver) {
  unsigned what = (vgs_cupti_wants(VGS_KIND_GRAPH_TRACE) ? 0 : VGW_MEASURE_NODES) |
                  (vgs_cupti_wants_event_times() ? VGW_MEASURE_EVENTS : 0);
  uint32_t wanted = driver->epoch() | what << 16;
  if (__atomic_load_n(&measuring, __ATOMIC_ACQUIRE) == wanted)
    return true;
  if (__atomic_load_n(&not_supported, __ATOMIC_RELAXED))
    return false;
  unsigned how = what;
  CUresult result = driver->measure(true, &how);
  if (result == CUDA_ERROR_NOT_SUPPORTED) {
    if (!__atomic_exchange_n(&not_supported, true, __ATOMIC_RELAXED))
      vgs_log(VGS_LOG_REASON, "the host does not measure what the device does: a profile shows calls alone");
    return false;
  }
  if (result)
    return false; /* no worker yet: this call starts one, and is not measured */
  if (what & ~how & VGW_MEASURE_NODES)
    vgs_log(VGS_LOG_INFO, "the host measures launches of graphs as a whole: their kernels are one record");
  pthread_mutex_lock(&vgs_cupti_lock);
  if (!calls)
    calls = calloc(CALLS, sizeof *calls);
  bool ready = calls != NULL;
  pthread_mutex_unlock(&vgs_cupti_lock);
  __atomic_store_n(&measured_what, how, __ATOMIC_RELAXED);
  if (ready)
    __atomic_store_n(&measuring, wanted, __ATOMIC_RELEASE);
  return ready;
}

/* The kind of memory of a copy's end in host memory. */
static uint8_t host_memory(const struct vgs_profiling *driver, const struct vgs_api_call *call,
                           enum vgs_cupti_class what) {
  const uint64_t *params = call->params; /* destination, source, number of bytes */
  uint64_t address = what == VGS_CALL_COPY_TO_DEVICE ? params[1] : params[0];
  struct vgs_memory_facts facts;
  if (what == VGS_CALL_COPY_EITHER && driver->memory(address, &facts) && facts.kind == VGS_MEMORY_DEVICE)
    address = params[1];
  bool known = what == VGS_CALL_COPY_TO_DEVICE || what == VGS_CALL_COPY_TO_HOST || what == VGS_CALL_COPY_EITHER;
  if (!known || !driver->memory(address, &facts))
    return VGS_MEMORY_KIND_PAGEABLE;
  return facts.kind == VGS_MEMORY_MANAGED ? VGS_MEMORY_KIND_MANAGED : VGS_MEMORY_KIND_PINNED;
}

bool vgs_cupti_submit(const struct vgs_api_call *call, const struct vgs_cupti_function *function) {
  const struct vgs_profiling *driver = vgs_cupti_driver();
  struct vgs_context_facts context;
  bool event = function->what == VGS_CALL_RECORD_EVENT;
  if (!driver->context(NULL, &context) || !measure(driver) ||
      (event && !(__atomic_load_n(&measured_what, __ATOMIC_RELAXED) & VGW_MEASURE_EVENTS)) ||
      (event && driver->is_capturing(call->stream, function->per_thread)))
    return false;
  struct submitted made = {.correlation = call->correlation,
                           .context = context.id,
                           .device = (uint16_t)context.device,
                           .what = (uint8_t)function->what,
                           .async = function->async};
  CUstream stream = call->stream;
  if (function->what == VGS_CALL_LAUNCH_EX) {
    const CUlaunchConfig *config = *(const CUlaunchConfig *const *)call->params;
    stream = config ? config->hStream : NULL;
  }
  if (function->what == VGS_CALL_GRAPH || event)
    made.object = driver->object_id(*(const void *const *)call->params);
  driver->stream_id(NULL, stream, function->per_thread, &made.stream);
  made.memory = host_memory(driver, call, function->what);
  if (event)
    made.sync_id = vgs_cupti_event_recorded(made.object);
  else
    made.ends[0] = made.ends[1] = context;
  if (function->what == VGS_CALL_COPY_PEER) { /* destination, its context, source, its context */
    driver->context(((void *const *)call->params)[1], &made.ends[0]);
    driver->context(((void *const *)call->params)[3], &made.ends[1]);
  }
  uint64_t place = __atomic_add_fetch(&call_count, 1, __ATOMIC_RELAXED);
  calls[place % CALLS] = made;
  driver->correlate(place << 32 | call->correlation);
  return true;
}

void vgs_cupti_submitted(void) { vgs_cupti_driver()->correlate(0); }

void vgs_cupti_stop_measuring(void) {
  const struct vgs_profiling *driver = vgs_cupti_driver();
  unsigned none = 0;
  if (__atomic_exchange_n(&measuring, 0, __ATOMIC_ACQ_REL) && driver)
    driver->measure(false, &none);
}

/* --- records --- */

/* Under `draining`. */
static const char *name_of(const struct vgs_profiling *driver, uint32_t id) {
  if (names_of != driver->epoch()) {
    free(names);
    names = NULL;
    name_count = 0;
    names_of = driver->epoch();
  }
  if (!id || id > NAMES_MAX)
    return "";
  if (id > name_count) {
    uint32_t count = id + 255;
    const char **grown = realloc(names, count * sizeof *names);
    if (!grown)
      return "";
    memset(grown + name_count, 0, (count - name_count) * sizeof *names);
    names = grown;
    name_count = count;
  }
  if (!names[id - 1]) {
    char text[VGW_ACTIVITY_NAME_NBYTES];
    if (driver->name(id, text))
      return "";
    names[id - 1] = strdup(text);
  }
  return names[id - 1] ? names[id - 1] : "";
}

static void put_kernel(const struct vgw_activity *a, const struct submitted *by, const char *name) {
  bool concurrent = vgs_cupti_wants(VGS_KIND_CONCURRENT_KERNEL);
  if (!concurrent && !vgs_cupti_wants(VGS_KIND_KERNEL))
    return;
  static uint64_t grids; /* under `draining` */
  struct vgs_cupti_Kernel record = {
      .kind = concurrent ? VGS_KIND_CONCURRENT_KERNEL : VGS_KIND_KERNEL,
      .registersPerThread = (uint16_t)a->registers,
      .start = vgs_cupti_time_of_worker(a->start_ns),
      .end = vgs_cupti_time_of_worker(a->end_ns),
      .deviceId = by->device,
      .contextId = by->context,
      .streamId = by->stream,
      .gridX = a->grid[0],
      .gridY = a->grid[1],
      .gridZ = a->grid[2],
      .blockX = a->block[0],
      .blockY = a->block[1],
      .blockZ = a->block[2],
      .staticSharedMemory = a->shared_static_nbytes,
      .dynamicSharedMemory = a->shared_dynamic_nbytes,
      .sharedMemoryExecuted = a->shared_static_nbytes + a->shared_dynamic_nbytes,
      .localMemoryPerThread = a->local_nbytes,
      .correlationId = by->correlation,
      .gridId = ++grids,
      .name = (uint64_t)(uintptr_t)name,
      .graphNodeId = a->graph_node,
      .graphId = a->of_graph ? by->object : 0,
  };
  record.completed = record.end;
  vgs_cupti_put(&record, sizeof record);
}

static uint8_t copy_kind(const struct vgw_activity *a) {
  if (a->source == VGW_ACTIVITY_HOST)
    return a->destination == VGW_ACTIVITY_HOST ? VGS_COPY_HTOH : VGS_COPY_HTOD;
  return a->destination == VGW_ACTIVITY_HOST ? VGS_COPY_DTOH : VGS_COPY_DTOD;
}

static void put_copy(const struct vgw_activity *a, const struct submitted *by) {
  if (!vgs_cupti_wants(VGS_KIND_MEMCPY))
    return;
  struct vgs_cupti_Memcpy record = {
      .kind = VGS_KIND_MEMCPY,
      .copyKind = copy_kind(a),
      .srcKind = a->source == VGW_ACTIVITY_HOST ? by->memory : VGS_MEMORY_KIND_DEVICE,
      .dstKind = a->destination == VGW_ACTIVITY_HOST ? by->memory : VGS_MEMORY_KIND_DEVICE,
      .flags = by->async || a->of_graph ? VGS_FLAG_ASYNC : 0,
      .bytes = a->nbytes,
      .start = vgs_cupti_time_of_worker(a->start_ns),
      .end = vgs_cupti_time_of_worker(a->end_ns),
      .deviceId = by->device,
      .contextId = by->context,
      .streamId = by->stream,
      .correlationId = by->correlation,
      .graphNodeId = a->graph_node,
      .graphId = a->of_graph ? by->object : 0,
      .copyCount = 1,
  };
  vgs_cupti_put(&record, sizeof record);
}

static void put_peer_copy(const struct vgw_activity *a, const struct submitted *by) {
  if (!vgs_cupti_wants(VGS_KIND_MEMCPY2))
    return;
  struct vgs_cupti_MemcpyPtoP record = {
      .kind = VGS_KIND_MEMCPY2,
      .copyKind = VGS_COPY_PTOP,
      .srcKind = VGS_MEMORY_KIND_DEVICE,
      .dstKind = VGS_MEMORY_KIND_DEVICE,
      .flags = by->async ? VGS_FLAG_ASYNC : 0,
      .bytes = a->nbytes,
      .start = vgs_cupti_time_of_worker(a->start_ns),
      .end = vgs_cupti_time_of_worker(a->end_ns),
      .deviceId = by->device,
      .contextId = by->context,
      .streamId = by->stream,
      .srcDeviceId = by->ends[1].device,
      .srcContextId = by->ends[1].id,
      .dstDeviceId = by->ends[0].device,
      .dstContextId = by->ends[0].id,
      .correlationId = by->correlation,
  };
  vgs_cupti_put(&record, sizeof record);
}

static void put_fill(const struct vgw_activity *a, const struct submitted *by) {
  if (!vgs_cupti_wants(VGS_KIND_MEMSET))
    return;
  struct vgs_cupti_Memset record = {
      .kind = VGS_KIND_MEMSET,
      .value = a->value,
      .bytes = a->nbytes,
      .start = vgs_cupti_time_of_worker(a->start_ns),
      .end = vgs_cupti_time_of_worker(a->end_ns),
      .deviceId = by->device,
      .contextId = by->context,
      .streamId = by->stream,
      .correlationId = by->correlation,
      .flags = by->async || a->of_graph ? VGS_FLAG_ASYNC : 0,
      .memoryKind = VGS_MEMORY_KIND_DEVICE,
      .graphNodeId = a->graph_node,
      .graphId = a->of_graph ? by->object : 0,
  };
  vgs_cupti_put(&record, sizeof record);
}

static void put_graph(const struct vgw_activity *a, const struct submitted *by) {
  struct vgs_cupti_GraphTrace record = {
      .kind = VGS_KIND_GRAPH_TRACE,
      .correlationId = by->correlation,
      .start = vgs_cupti_time_of_worker(a->start_ns),
      .end = vgs_cupti_time_of_worker(a->end_ns),
      .deviceId = by->device,
      .graphId = by->object,
      .contextId = by->context,
      .streamId = by->stream,
      .endDeviceId = by->device,
      .endContextId = by->context,
  };
  vgs_cupti_put(&record, sizeof record);
}

static void put_event(const struct vgw_activity *a, const struct submitted *by) {
  struct vgs_cupti_recorded recorded = {.event = by->object,
                                        .correlation = by->correlation,
                                        .context = by->context,
                                        .device = by->device,
                                        .stream = by->stream,
                                        .sync_id = by->sync_id};
  vgs_cupti_put_event(&recorded, vgs_cupti_time_of_worker(a->start_ns));
}

/* Under `draining`. */
static void put(const struct vgs_profiling *driver, const struct vgw_activity *a) {
  uint64_t place = a->correlation >> 32;
  struct submitted by = calls[place % CALLS];
  if (by.correlation != (uint32_t)a->correlation) { /* more than CALLS were outstanding; or the host made it up */
    vgs_cupti_count_dropped(1);
    return;
  }
  if (a->kind == VGW_ACTIVITY_KERNEL)
    put_kernel(a, &by, name_of(driver, a->name));
  else if (a->kind == VGW_ACTIVITY_EVENT)
    put_event(a, &by);
  else if (a->kind == VGW_ACTIVITY_GRAPH && vgs_cupti_wants(VGS_KIND_GRAPH_TRACE))
    put_graph(a, &by);
  else if (a->kind == VGW_ACTIVITY_GRAPH)
    put_kernel(a, &by, "[CUDA graph]");
  else if (a->kind == VGW_ACTIVITY_COPY && by.what == VGS_CALL_COPY_PEER)
    put_peer_copy(a, &by);
  else if (a->kind == VGW_ACTIVITY_COPY)
    put_copy(a, &by);
  else if (a->kind == VGW_ACTIVITY_FILL)
    put_fill(a, &by);
}

/* A long copy is sent in pieces, which become one record. */
static bool is_piece(const struct vgw_activity *last, const struct vgw_activity *next) {
  return last->correlation == next->correlation && last->kind == next->kind && !next->of_graph &&
         (next->kind == VGW_ACTIVITY_COPY || next->kind == VGW_ACTIVITY_FILL);
}

static void add_piece(struct vgw_activity *to, const struct vgw_activity *piece) {
  to->nbytes += piece->nbytes;
  if (piece->start_ns < to->start_ns)
    to->start_ns = piece->start_ns;
  if (piece->end_ns > to->end_ns)
    to->end_ns = piece->end_ns;
}

/* Read all records that the worker has. Under `draining`. */
static CUresult read_records(const struct vgs_profiling *driver, struct vgw_activity *batch) {
  struct vgw_activity held = {0};
  size_t count = BATCH;
  CUresult result = CUDA_SUCCESS;
  while (count == BATCH && !(result = driver->take(batch, BATCH, &count)))
    for (size_t i = 0; i < count; i++) {
      if (held.correlation && is_piece(&held, &batch[i])) {
        add_piece(&held, &batch[i]);
        continue;
      }
      if (held.correlation)
        put(driver, &held);
      held = batch[i];
    }
  if (held.correlation)
    put(driver, &held);
  return result;
}

int vgs_cupti_drain(void) {
  const struct vgs_profiling *driver = vgs_cupti_driver();
  if (!driver || !__atomic_load_n(&calls, __ATOMIC_ACQUIRE))
    return CUPTI_SUCCESS;
  pthread_mutex_lock(&vgs_cupti_draining);
  struct vgw_activity *batch = malloc(BATCH * sizeof *batch);
  CUresult result = batch ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  if (batch) {
    vgs_cupti_clock_measure(driver);
    result = read_records(driver, batch);
  }
  free(batch);
  uint64_t made = __atomic_load_n(&call_count, __ATOMIC_RELAXED);
  __atomic_store_n(&drained_at, made, __ATOMIC_RELAXED);
  uint32_t was = result ? __atomic_exchange_n(&measuring, 0, __ATOMIC_ACQ_REL) : 0;
  pthread_mutex_unlock(&vgs_cupti_draining);
  if (!result)
    return CUPTI_SUCCESS;
  if (was) {
    vgs_cupti_count_dropped(1);
    vgs_log(VGS_LOG_REASON, "the worker is gone (CUDA error %d): what it measured since the last flush is lost",
            result);
  }
  return was ? CUPTI_ERROR_UNKNOWN : CUPTI_SUCCESS;
}

void vgs_cupti_drain_often(void) {
  uint64_t made = __atomic_load_n(&call_count, __ATOMIC_RELAXED), at = __atomic_load_n(&drained_at, __ATOMIC_RELAXED);
  if (made - at < DRAIN_CALLS || !__atomic_compare_exchange_n(&drained_at, &at, made, false, __ATOMIC_RELAXED,
                                                              __ATOMIC_RELAXED)) /* another thread drains */
    return;
  vgs_cupti_drain();
}
