#include "vgs_event.h"
#include "vgs_api.h"
#include "vgs_capture.h"
#include "vgs_enter.h"
#include "vgs_ipc.h"
#include "vgs_order.h"
#include "vgs_profiling.h"
#include "vgs_ring_set.h"
#include "vgs_stream.h"

CUresult vgs_cuEventRecord(CUevent hEvent, CUstream hStream) { return vgs_cuEventRecordWithFlags(hEvent, hStream, 0); }

void vgs_event_of_graph(struct vgs_event *event) {
  __atomic_store_n(&event->of_graph, 1, __ATOMIC_RELEASE);
  __atomic_store_n(&event->recorded, 1, __ATOMIC_RELEASE);
}

/* Whether a launch may have recorded the event since, in any ring: what comes now follows all of them. */
static bool is_of_graph(const struct vgs_event *event) {
  bool of_graph = __atomic_load_n(&event->of_graph, __ATOMIC_ACQUIRE);
  if (of_graph)
    vgs_touch_mix(VGW_KIND_EVENT, event->object.id);
  return of_graph;
}

uint64_t vgs_event_record_begin(struct vgs_event *event, const struct vgs_stream *stream, uint32_t flags) {
  uint64_t capture = stream && vgs_capture_status(stream->capture) ? stream->capture : 0;
  if (capture && flags) {
    vgs_event_of_graph(event);
    return capture;
  }
  (void)is_of_graph(event);
  if (event->capture != capture) /* a load is cheaper than a store of the same value */
    event->capture = capture;
  if (!capture)
    __atomic_store_n(&event->recorded, 1, __ATOMIC_RELEASE);
  __atomic_store_n(&event->entry, 0, __ATOMIC_RELEASE);
  return capture;
}

void vgs_event_recorded_in_worker(struct vgs_event *event) {
  __atomic_store_n(&event->recorded, 1, __ATOMIC_RELEASE);
  __atomic_store_n(&event->entry, 0, __ATOMIC_RELEASE);
}

/* An ordinary stream waits for the legacy stream before each of its operations. A stream of another context than the
 * event's is an error, which the worker reports. */
uint64_t vgs_event_idle_at(const struct vgs_event *event, const struct vgs_stream *stream) {
  uint32_t id = stream ? stream->object.id : 0, context_id = stream ? stream->object.context_id : vgs_thread_context_id;
  if (!(event->flags & CU_EVENT_DISABLE_TIMING) || event->object.context_id != context_id ||
      vgs_diverted(VGS_CAPTURING))
    return 0;
  uint64_t entry = vgs_touch_entry(VGW_KIND_STREAM, id);
  bool follows_legacy = stream && !(stream->flags & CU_STREAM_NON_BLOCKING);
  return vgs_wait_stream_is_done(id) && (!follows_legacy || vgs_wait_stream_is_done(0)) ? entry : 0;
}

void vgs_event_record_end(struct vgs_event *event, uint32_t stream, uint64_t idle_at) {
  uint64_t entry;
  if (vgs_ring_active() && vgs_order_is_last(stream, &entry)) {
    if (idle_at && vgs_order_is_next(stream, idle_at, &entry))
      vgs_wait_set_done(stream, entry);
    if (event->stream != stream)
      event->stream = stream;
    __atomic_store_n(&event->entry, entry, __ATOMIC_RELEASE);
  }
}

/* The stream in which the event was last recorded; returns the stream's entry of that moment, 0 if unknown. A thread
 * that records the event concurrently clears `entry` first, so the two match if `entry` is unchanged afterwards. */
static uint64_t recorded_at(struct vgs_event *event, uint32_t *stream) {
  if (is_of_graph(event)) {
    *stream = 0;
    return 0;
  }
  uint64_t entry = __atomic_load_n(&event->entry, __ATOMIC_ACQUIRE);
  *stream = event->stream;
  return entry == __atomic_load_n(&event->entry, __ATOMIC_ACQUIRE) ? entry : 0;
}

uint64_t vgs_event_entry(struct vgs_event *event) {
  uint32_t stream;
  return vgs_ring_active() ? recorded_at(event, &stream) : 0;
}

static bool is_recorded(const struct vgs_event *event) { return __atomic_load_n(&event->recorded, __ATOMIC_ACQUIRE); }

/* All contexts share the legacy stream, so its progress is unknown if there has been more than one context. */
bool vgs_event_is_done(struct vgs_event *event) {
  uint32_t stream;
  if (!is_recorded(event))
    return true;
  uint64_t entry = recorded_at(event, &stream);
  return entry && !(stream == 0 && vgs_progress_is_unknown()) && vgs_ring_active() && !vgs_ring_notice() &&
         vgs_touch_is_done(stream, entry);
}

/* A driver treats an event that is complete as one that was never recorded in all but captures, and there it matters
 * that it was recorded, not when. */
bool vgs_event_record_idle(struct vgs_event *event, uint32_t stream, uint64_t idle_at) {
  if (!is_recorded(event) || event->capture || !vgs_event_is_done(event) ||
      __atomic_load_n(&vgs_profiling_state, __ATOMIC_RELAXED))
    return false;
  __atomic_store_n(&event->entry, 0, __ATOMIC_RELEASE);
  event->stream = stream;
  vgs_wait_set_done(stream, idle_at);
  __atomic_store_n(&event->entry, idle_at, __ATOMIC_RELEASE);
  return true;
}

bool vgs_event_is_last(struct vgs_event *event) {
  uint32_t stream;
  uint64_t entry = recorded_at(event, &stream);
  return entry && entry == vgs_touch_entry(VGW_KIND_STREAM, stream);
}

bool vgs_event_is_timed(const struct vgs_event *event) {
  (void)is_of_graph(event);
  return !(event->flags & CU_EVENT_DISABLE_TIMING) && is_recorded(event);
}

CUresult vgs_event_captured(const struct vgs_event *event) {
  vgs_capture_forbid(event->capture);
  return CUDA_ERROR_CAPTURED_EVENT;
}
