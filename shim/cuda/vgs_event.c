#include "vgs_api.h"
#include "vgs_capture.h"
#include "vgs_context.h"
#include "vgs_ipc.h"
#include "vgs_ring.h"
#include "vgs_settle.h"
#include "vgs_stream.h"
#include "vgs_touch.h"
#include "vgs_wait.h"

static struct vgs_event *find(CUevent event) { return vgs_object_find(VGW_KIND_EVENT, event); }

CUresult vgs_cuEventCreate(CUevent *phEvent, unsigned int Flags) {
  if (!phEvent || Flags & ~7u)
    return CUDA_ERROR_INVALID_VALUE;
  if (Flags & CU_EVENT_INTERPROCESS)
    return vgs_ipc_event_create(phEvent, Flags);
  struct vgs_event *event = vgs_object_create(VGW_KIND_EVENT, vgs_context_entered->wire_id);
  if (!event)
    return CUDA_ERROR_OUT_OF_MEMORY;
  event->flags = Flags;
  CUresult result = vgs_send_cuEventCreate(event->object.id, Flags, false);
  if (result)
    vgs_object_destroy(event);
  else
    *phEvent = vgs_object_handle(event);
  return result;
}

CUresult vgs_cuEventRecord(CUevent hEvent, CUstream hStream) { return vgs_cuEventRecordWithFlags(hEvent, hStream, 0); }

CUresult vgs_cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
  struct vgs_event *event = find(hEvent);
  uint32_t stream_id;
  struct vgs_stream *stream;
  CUresult result = vgs_stream_id(hStream, &stream_id, &stream);
  if (!event)
    return vgs_ipc_event_record(hEvent, hStream, flags);
  if (result)
    return result;
  if (flags > 1) /* 1: the external form, which matters inside a capture alone */
    return CUDA_ERROR_INVALID_VALUE;
  bool capturing = stream && vgs_capture_status(stream->capture);
  uint64_t capture = capturing ? stream->capture : 0;
  if (event->capture != capture) /* looking costs less than storing */
    event->capture = capture;
  if (!capturing)
    __atomic_store_n(&event->recorded, 1, __ATOMIC_RELEASE);
  __atomic_store_n(&event->entry, 0, __ATOMIC_RELEASE);
  result = vgs_send_cuEventRecordWithFlags(event->object.id, stream_id, flags, false);
  uint64_t entry;
  if (!result && !capturing && vgs_ring_active() && vgs_ring_touched_last(stream_id, &entry)) {
    if (event->stream != stream_id)
      event->stream = stream_id;
    __atomic_store_n(&event->entry, entry, __ATOMIC_RELEASE);
  }
  return result;
}

/* Where the event was recorded: its stream's touch then, 0 if it is not known. A thread that records it at this moment
 * takes `entry` away first, so the two words belong together if it is still the same afterwards. */
static uint64_t recorded_at(struct vgs_event *event, uint32_t *stream) {
  uint64_t entry = __atomic_load_n(&event->entry, __ATOMIC_ACQUIRE);
  *stream = event->stream;
  return entry == __atomic_load_n(&event->entry, __ATOMIC_ACQUIRE) ? entry : 0;
}

/* Whether a wait for the event's stream has shown that it is done. The legacy stream is every context's. */
static bool is_done(struct vgs_event *event) {
  uint32_t stream;
  uint64_t entry = recorded_at(event, &stream);
  return entry && !(stream == 0 && vgs_settle_is_blind()) && vgs_ring_active() && !vgs_ring_notice() &&
         vgs_touch_is_settled(stream, entry);
}

/* Nobody can ask whether a captured event is done; asking loses the capture, says the programming guide. */
static CUresult captured(const struct vgs_event *event) {
  vgs_capture_forbid(event->capture);
  return CUDA_ERROR_CAPTURED_EVENT;
}

/* An event that was never recorded is complete; that needs no asking. */
CUresult vgs_cuEventQuery(CUevent hEvent) {
  struct vgs_event *event = find(hEvent);
  if (!event)
    return vgs_ipc_event_query(hEvent);
  if (vgs_capture_status(event->capture))
    return captured(event);
  if (!__atomic_load_n(&event->recorded, __ATOMIC_ACQUIRE) || is_done(event))
    return CUDA_SUCCESS;
  return vgs_send_cuEventQuery(event->object.id);
}

CUresult vgs_cuEventSynchronize(CUevent hEvent) {
  struct vgs_event *event = find(hEvent);
  if (!event)
    return vgs_ipc_event_synchronize(hEvent);
  if (vgs_capture_status(event->capture))
    return captured(event);
  if (!__atomic_load_n(&event->recorded, __ATOMIC_ACQUIRE) || is_done(event))
    return CUDA_SUCCESS;
  uint32_t stream;
  uint64_t entry = recorded_at(event, &stream);
  /* Nothing was given to its stream since: the stream's own end is the event's. */
  if (entry && entry == vgs_touch_entry(VGW_KIND_STREAM, stream))
    return vgs_wait_stream(stream);
  return vgs_send_cuEventSynchronize(event->object.id);
}

CUresult vgs_cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd) {
  struct vgs_event *start = find(hStart), *end = find(hEnd);
  if (!pMilliseconds)
    return CUDA_ERROR_INVALID_VALUE;
  if (!start || !end || (start->flags | end->flags) & CU_EVENT_DISABLE_TIMING ||
      !__atomic_load_n(&start->recorded, __ATOMIC_ACQUIRE) || !__atomic_load_n(&end->recorded, __ATOMIC_ACQUIRE))
    return CUDA_ERROR_INVALID_HANDLE;
  return vgs_send_cuEventElapsedTime_v2(pMilliseconds, start->object.id, end->object.id);
}
