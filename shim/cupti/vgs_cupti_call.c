#define _GNU_SOURCE
#include "vgs_cupti_call.h"
#include "vgs_cupti_api.h"
#include "vgs_cupti_buffer.h"
#include "vgs_cupti_callback.h"
#include "vgs_cupti_clock.h"
#include "vgs_cupti_device.h"
#include "vgs_cupti_event.h"
#include "vgs_cupti_external.h"
#include "vgs_cupti_layout.h"
#include "vgs_cupti_memory.h"
#include "vgs_cupti_resource.h"
#include "vgs_cupti_result.h"
#include "vgs_cupti_runtime.h"
#include "vgs_cupti_state.h"
#include <pthread.h>
#include <unistd.h>

enum { IDS = 1024, THREAD_ID_DEFAULT = 0, THREAD_ID_SYSTEM = 1 };

static uint32_t last_correlation;                     /* atomic */
static uint32_t thread_id_type;                       /* atomic */
static uint8_t left_out[VGS_DOMAIN_RUNTIME + 1][IDS]; /* atomic; cuptiActivityEnableDriverApi, ...RuntimeApi */
static _Thread_local uint32_t runtime_correlation;    /* of the runtime call this thread is inside; 0: none */

static const struct vgs_cupti_function *function_of(const struct vgs_api_call *call) {
  bool known = call->domain == VGS_API_DRIVER && call->id < vgs_cupti_drivers_count;
  return known ? &vgs_cupti_drivers[call->id] : NULL;
}

/* Whether the call's device work is to be measured by the worker. */
static bool is_measured(const struct vgs_cupti_function *function) {
  if (function && function->what == VGS_CALL_RECORD_EVENT)
    return vgs_cupti_wants_event_times();
  return function && function->what >= VGS_CALL_LAUNCH && function->what <= VGS_CALL_FILL && vgs_cupti_wants_device();
}

static uint32_t thread_id(void) {
  return __atomic_load_n(&thread_id_type, __ATOMIC_RELAXED) == THREAD_ID_SYSTEM ? (uint32_t)gettid()
                                                                                : (uint32_t)pthread_self();
}

static uint32_t next_correlation(void) {
  uint32_t next = __atomic_add_fetch(&last_correlation, 1, __ATOMIC_RELAXED);
  return next ? next : __atomic_add_fetch(&last_correlation, 1, __ATOMIC_RELAXED);
}

static void enter(struct vgs_api_call *call) {
  if (vgs_cupti_in_program()) /* calls made inside the profiler's own functions are not recorded */
    return;
  const struct vgs_cupti_function *function = function_of(call);
  call->outer = runtime_correlation;
  call->correlation = call->outer ? call->outer : next_correlation();
  if (call->domain == VGS_API_RUNTIME)
    runtime_correlation = call->correlation;
  if (vgs_cupti_wants_any())
    vgs_cupti_buffers_tend();
  vgs_cupti_call_subscriber(call, VGS_SITE_ENTER, NULL, function);
  if (vgs_cupti_wants_domain(VGS_DOMAIN_RESOURCE))
    vgs_cupti_resources_before(call);
  if (call->domain == VGS_API_DRIVER && !call->outer && vgs_cupti_wants(VGS_KIND_RUNTIME))
    call->runtime = vgs_cupti_runtime_of(call, function);
  vgs_cupti_memory_before(call, function);
  call->start = vgs_cupti_now();
  call->measured = is_measured(function) && vgs_cupti_submit(call, function);
}

/* The domain and callback id that a call is recorded with: a driver call by which NVIDIA's runtime does what it was
 * called for is recorded as the runtime's call instead, as NVIDIA's CUPTI records it. */
static uint32_t recorded_domain(const struct vgs_api_call *call) {
  return call->runtime ? VGS_API_RUNTIME : call->domain;
}
static uint32_t recorded_id(const struct vgs_api_call *call) { return call->runtime ? call->runtime : call->id; }

static bool wants_record(const struct vgs_api_call *call) {
  uint32_t domain = recorded_domain(call), id = recorded_id(call);
  return vgs_cupti_wants(domain == VGS_API_DRIVER ? VGS_KIND_DRIVER : VGS_KIND_RUNTIME) &&
         (id >= IDS || !__atomic_load_n(&left_out[domain][id], __ATOMIC_RELAXED));
}

static void put_call(const struct vgs_api_call *call, int result, uint64_t end) {
  struct vgs_cupti_API record = {.kind = recorded_domain(call) == VGS_API_DRIVER ? VGS_KIND_DRIVER : VGS_KIND_RUNTIME,
                                 .cbid = recorded_id(call),
                                 .start = call->start,
                                 .end = end,
                                 .processId = (uint32_t)getpid(),
                                 .threadId = thread_id(),
                                 .correlationId = call->correlation,
                                 .returnValue = (uint32_t)result};
  vgs_cupti_put(&record, sizeof record);
}

/* Record a call that waited, or that made the device wait. */
static void put_wait(const struct vgs_api_call *call, const struct vgs_cupti_function *function, uint64_t end) {
  enum { NONE = UINT32_MAX }; /* where no stream or event applies */
  const struct vgs_profiling *driver = vgs_cupti_driver();
  struct vgs_context_facts context = {0};
  void *const *params = call->params;
  struct vgs_cupti_Synchronization record = {.kind = VGS_KIND_SYNCHRONIZATION,
                                             .start = call->start,
                                             .end = end,
                                             .correlationId = call->correlation,
                                             .streamId = (uint32_t)NONE,
                                             .cudaEventId = (uint32_t)NONE,
                                             .cudaEventSyncId = (uint32_t)NONE};
  driver->context(NULL, &context);
  record.contextId = context.id;
  if (function->what == VGS_CALL_SYNC_STREAM || function->what == VGS_CALL_WAIT_EVENT)
    driver->stream_id(NULL, call->stream, function->per_thread, &record.streamId);
  if (function->what == VGS_CALL_SYNC_EVENT)
    record.cudaEventId = driver->object_id(params[0]);
  if (function->what == VGS_CALL_WAIT_EVENT)
    record.cudaEventId = driver->object_id(params[1]);
  if (record.cudaEventId != (uint32_t)NONE)
    record.cudaEventSyncId = vgs_cupti_event_last(record.cudaEventId);
  record.type = function->what == VGS_CALL_SYNC_STREAM    ? VGS_SYNC_STREAM
                : function->what == VGS_CALL_SYNC_CONTEXT ? VGS_SYNC_CONTEXT
                : function->what == VGS_CALL_SYNC_EVENT   ? VGS_SYNC_EVENT
                                                          : VGS_SYNC_WAIT;
  vgs_cupti_put(&record, sizeof record);
}

/* Put the record of a call that recorded an event, without a device time. In a capture no event is recorded. */
static void put_event(const struct vgs_api_call *call, const struct vgs_cupti_function *function) {
  const struct vgs_profiling *driver = vgs_cupti_driver();
  struct vgs_context_facts context = {0};
  struct vgs_cupti_recorded recorded = {.event = driver->object_id(*(void *const *)call->params),
                                        .correlation = call->correlation};
  if (driver->is_capturing(call->stream, function->per_thread))
    return;
  driver->context(NULL, &context);
  driver->stream_id(NULL, call->stream, function->per_thread, &recorded.stream);
  recorded.context = context.id;
  recorded.device = context.device;
  recorded.sync_id = vgs_cupti_event_recorded(recorded.event);
  vgs_cupti_put_event(&recorded, 0);
}

static void leave(struct vgs_api_call *call, int result) {
  uint64_t end = vgs_cupti_now();
  const struct vgs_cupti_function *function = function_of(call);
  bool device = call->measured;
  if (device)
    vgs_cupti_submitted();
  if (call->domain == VGS_API_RUNTIME)
    runtime_correlation = call->outer;
  bool recorded = wants_record(call);
  if (recorded)
    put_call(call, result, end);
  bool around = call->domain == VGS_API_RUNTIME && vgs_cupti_wants_device();
  if ((recorded || device || around) && vgs_cupti_wants(VGS_KIND_EXTERNAL_CORRELATION) && !call->outer)
    vgs_cupti_put_external(call->correlation);
  if (function && function->what >= VGS_CALL_SYNC_STREAM && !result && vgs_cupti_wants(VGS_KIND_SYNCHRONIZATION))
    put_wait(call, function, end);
  if (function && function->what == VGS_CALL_RECORD_EVENT && !result && !device && vgs_cupti_wants_events())
    put_event(call, function);
  vgs_cupti_memory_after(call, function, result, end);
  if (vgs_cupti_wants_domain(VGS_DOMAIN_RESOURCE))
    vgs_cupti_resources_after(call, result);
  vgs_cupti_call_subscriber(call, VGS_SITE_EXIT, &result, function); /* the subscriber may end its subscription */
  if (device)
    vgs_cupti_drain_often();
  if (vgs_cupti_wants_any())
    vgs_cupti_buffers_tend();
}

const struct vgs_observer vgs_cupti_observer = {.enter = enter, .leave = leave};

/* --- settings of the recording --- */

static int leave_out(uint32_t domain, size_t count, uint32_t cbid, bool out) {
  if (!cbid || cbid >= count || cbid >= IDS)
    return CUPTI_ERROR_INVALID_PARAMETER;
  __atomic_store_n(&left_out[domain][cbid], out, __ATOMIC_RELAXED);
  return CUPTI_SUCCESS;
}

int vgs_cuptiActivityEnableDriverApi(uint32_t cbid, uint8_t enable) {
  return leave_out(VGS_DOMAIN_DRIVER, vgs_cupti_drivers_count, cbid, !enable);
}

int vgs_cuptiActivityEnableRuntimeApi(uint32_t cbid, uint8_t enable) {
  return leave_out(VGS_DOMAIN_RUNTIME, vgs_cupti_runtimes_count, cbid, !enable);
}

int vgs_cuptiSetThreadIdType(uint32_t type) {
  if (type != THREAD_ID_DEFAULT && type != THREAD_ID_SYSTEM)
    return CUPTI_ERROR_INVALID_PARAMETER;
  __atomic_store_n(&thread_id_type, type, __ATOMIC_RELAXED);
  return CUPTI_SUCCESS;
}

int vgs_cuptiGetThreadIdType(uint32_t *type) {
  if (!type)
    return CUPTI_ERROR_INVALID_PARAMETER;
  *type = __atomic_load_n(&thread_id_type, __ATOMIC_RELAXED);
  return CUPTI_SUCCESS;
}
