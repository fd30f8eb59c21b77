/* Streams, events, host functions: the driver's functions over the queue.
 *
 * An event is a name for a marker: recording creates a new one, and a waiter holds the marker that the event had at
 * that time, so that recording again or destroying the event does not affect it. Locking: the runtime lock. */
#include "vgx_sim_stream.h"

#include <stdlib.h>
#include <string.h>

#include "vgx_sim_activity.h"
#include "vgx_sim_capture.h"
#include "vgx_sim_event.h"
#include "vgx_sim_marker.h"
#include "vgx_sim_queue.h"
#include "vgx_sim_runtime.h"

#define EVENT_FLAGS_VALID (CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)

void vgx_sim_stream_init(CUstream stream, CUcontext ctx, uint32_t flags, int32_t priority) {
  enum { POLICY_UNSET = -1 }; /* as an H200 answers */
  *stream = (struct CUstream_st){
      .magic = VGX_SIM_STREAM, .ctx = ctx, .flags = flags, .priority = priority, .policy = POLICY_UNSET};
}

static bool is_event(CUevent event) { return event && event->magic == VGX_SIM_EVENT; }

CUresult vgx_sim_stream_create(CUcontext ctx, CUgreenCtx green, unsigned int flags, int priority, CUstream *made) {
  if (!made || flags & ~(unsigned int)CU_STREAM_NON_BLOCKING)
    return CUDA_ERROR_INVALID_VALUE;
  CUstream stream = malloc(sizeof *stream);
  if (!stream)
    return CUDA_ERROR_OUT_OF_MEMORY;
  /* Priorities outside the device's range are clamped, says the driver's manual; they do not change the order here. */
  const struct vgx_sim_device_properties *p = &ctx->device->properties;
  priority = priority > p->priority_least ? p->priority_least : priority;
  priority = priority < p->priority_greatest ? p->priority_greatest : priority;
  vgx_sim_stream_init(stream, ctx, flags, priority);
  stream->green = green;
  vgx_sim_lock();
  stream->next = ctx->streams;
  ctx->streams = stream;
  vgx_sim_unlock();
  *made = stream;
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority) {
  CUcontext ctx, named = vgx_sim_current_name();
  CUresult result = vgx_sim_enter(&ctx);
  return result == CUDA_SUCCESS ? vgx_sim_stream_create(ctx, named->green, flags, priority, phStream) : result;
}

CUresult vgx_sim_cuStreamDestroy_v2(CUstream hStream) {
  CUstream stream;
  CUresult result = vgx_sim_enter_stream(hStream, NULL, &stream);
  if (result == CUDA_ERROR_STREAM_DETACHED) { /* all that it can be used for */
    result = CUDA_SUCCESS;
    stream = hStream;
  }
  if (result != CUDA_SUCCESS)
    return result;
  if (stream != hStream) /* a default stream cannot be destroyed */
    return CUDA_ERROR_INVALID_HANDLE;
  vgx_sim_lock();
  result = stream->destroyed ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
  stream->destroyed = true;
  vgx_sim_stream_free_unused_locked(stream);
  vgx_sim_unlock();
  return result;
}

CUresult vgx_sim_cuStreamSynchronize(CUstream hStream) {
  CUstream stream;
  CUresult result = vgx_sim_enter_stream(hStream, NULL, &stream);
  if (result == CUDA_SUCCESS)
    result = vgx_sim_capture_forbid(stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  return result == CUDA_SUCCESS ? vgx_sim_wait_stream(stream) : result;
}

/* Copies all attributes that a stream has here. */
CUresult vgx_sim_cuStreamCopyAttributes(CUstream dst, CUstream src) {
  CUcontext ctx;
  CUstream to, from;
  CUresult result = vgx_sim_enter_stream(dst, &ctx, &to);
  if (result == CUDA_SUCCESS)
    result = vgx_sim_stream_of(ctx, src, &from);
  if (result == CUDA_SUCCESS && to->ctx != from->ctx)
    return CUDA_ERROR_INVALID_VALUE;
  if (result != CUDA_SUCCESS)
    return result;
  vgx_sim_lock();
  to->policy = from->policy;
  memcpy(to->window, from->window, sizeof to->window);
  vgx_sim_unlock();
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuStreamQuery(CUstream hStream) {
  CUstream stream;
  CUresult result = vgx_sim_enter_stream(hStream, NULL, &stream);
  if (result != CUDA_SUCCESS)
    return result;
  if ((result = vgx_sim_capture_forbid(stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)) != CUDA_SUCCESS)
    return result;
  vgx_sim_lock();
  bool idle = vgx_sim_stream_idle_locked(stream);
  result = stream->ctx->sticky;
  vgx_sim_unlock();
  return result != CUDA_SUCCESS ? result : idle ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

/* In a capture the external form of recording an event and of waiting for one is a node. */
static CUresult capture_external(CUstream stream, CUevent event, bool record, bool *captured) {
  vgx_sim_lock();
  *captured = vgx_sim_is_capturing_locked(stream);
  vgx_sim_unlock();
  struct vgx_sim_op *op;
  CUresult result = *captured ? vgx_sim_event_op(event, record, &op) : CUDA_SUCCESS;
  if (!*captured || result != CUDA_SUCCESS)
    return result;
  vgx_sim_lock();
  result = vgx_sim_is_capturing_locked(stream) ? vgx_sim_capture_locked(stream, op)
                                               : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED; /* ended meanwhile */
  vgx_sim_unlock();
  if (result != CUDA_SUCCESS)
    op->destroy(op);
  return result;
}

CUresult vgx_sim_cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
  CUstream stream;
  CUresult result = vgx_sim_enter_stream(hStream, NULL, &stream);
  if (result != CUDA_SUCCESS)
    return result;
  if (Flags > 1) /* CU_EVENT_WAIT_EXTERNAL is the only flag */
    return CUDA_ERROR_INVALID_VALUE;
  if (!is_event(hEvent))
    return CUDA_ERROR_INVALID_HANDLE;
  bool handled = false;
  if (Flags)
    result = capture_external(stream, hEvent, false, &handled);
  if (handled)
    return result;
  struct vgx_sim_op *op = calloc(1, sizeof *op);
  if (!op)
    return CUDA_ERROR_OUT_OF_MEMORY;
  op->destroy = vgx_sim_op_destroy;
  vgx_sim_lock();
  result = vgx_sim_capture_wait_locked(stream, hEvent, &handled);
  op->wait = handled ? NULL : hEvent->marker;
  if (op->wait)
    op->wait->refs++;
  vgx_sim_unlock();
  if (handled) {
    free(op);
    return result;
  }
  return vgx_sim_submit(stream, op, VGX_SIM_QUEUE);
}

CUresult vgx_sim_cuEventCreate(CUevent *phEvent, unsigned int Flags) {
  CUcontext ctx;
  CUresult result = vgx_sim_enter(&ctx);
  if (result != CUDA_SUCCESS)
    return result;
  if (!phEvent || Flags & ~(unsigned int)EVENT_FLAGS_VALID ||
      (Flags & CU_EVENT_INTERPROCESS && !(Flags & CU_EVENT_DISABLE_TIMING)))
    return CUDA_ERROR_INVALID_VALUE;
  if (Flags & CU_EVENT_INTERPROCESS)
    return CUDA_ERROR_NOT_SUPPORTED;
  CUevent event = calloc(1, sizeof *event);
  if (!event)
    return CUDA_ERROR_OUT_OF_MEMORY;
  event->magic = VGX_SIM_EVENT;
  event->flags = Flags;
  event->refs = 1;
  event->ctx = ctx;
  vgx_sim_lock();
  event->next = ctx->events;
  ctx->events = event;
  vgx_sim_unlock();
  *phEvent = event;
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuEventDestroy_v2(CUevent hEvent) {
  if (!is_event(hEvent))
    return CUDA_ERROR_INVALID_HANDLE;
  vgx_sim_lock();
  for (CUevent *link = &hEvent->ctx->events; *link; link = &(*link)->next)
    if (*link == hEvent) {
      *link = hEvent->next;
      break;
    }
  vgx_sim_captured_clear_locked(&hEvent->captured);
  hEvent->magic = VGX_SIM_DEAD;
  vgx_sim_event_unref_locked(hEvent);
  vgx_sim_unlock();
  return CUDA_SUCCESS;
}

static CUresult run_nothing(struct vgx_sim_op *op) {
  (void)op;
  return CUDA_SUCCESS;
}

static void describe_record(const struct vgx_sim_op *op, struct vgw_activity *activity, const char **name) {
  (void)op, (void)name;
  activity->kind = VGW_ACTIVITY_EVENT;
}

CUresult vgx_sim_cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
  CUstream stream;
  CUresult result = vgx_sim_enter_stream(hStream, NULL, &stream);
  if (result != CUDA_SUCCESS)
    return result;
  if (flags > 1) /* CU_EVENT_RECORD_EXTERNAL is the only flag */
    return CUDA_ERROR_INVALID_VALUE;
  if (!is_event(hEvent) || hEvent->ctx != stream->ctx)
    return CUDA_ERROR_INVALID_HANDLE;
  bool captured = false;
  if (flags)
    result = capture_external(stream, hEvent, true, &captured);
  if (captured)
    return result;
  struct vgx_sim_op *op = vgx_sim_marker_op_create(!(hEvent->flags & CU_EVENT_DISABLE_TIMING));
  if (!op)
    return CUDA_ERROR_OUT_OF_MEMORY;
  if (vgx_sim_measures(VGW_MEASURE_EVENTS)) {
    op->run = run_nothing; /* only what runs is measured */
    op->describe = describe_record;
  }
  vgx_sim_lock();
  bool captures = vgx_sim_is_capturing_locked(stream);
  result = captures ? vgx_sim_capture_record_locked(stream, hEvent) : vgx_sim_capture_check_legacy_locked(stream);
  if (captures || result != CUDA_SUCCESS) { /* a refused event stays as it was */
    vgx_sim_unlock();
    free(op->record);
    free(op);
    return result;
  }
  op->record->refs++;
  vgx_sim_event_put_locked(hEvent, op->record);
  return vgx_sim_submit_unlock(stream, op, VGX_SIM_QUEUE);
}

CUresult vgx_sim_cuEventQuery(CUevent hEvent) {
  if (!is_event(hEvent))
    return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = vgx_sim_check(hEvent->ctx);
  if (result != CUDA_SUCCESS)
    return result;
  vgx_sim_lock();
  result = vgx_sim_capture_event_locked(hEvent);
  bool done = !hEvent->marker || hEvent->marker->done;
  vgx_sim_unlock();
  return result != CUDA_SUCCESS ? result : done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult vgx_sim_cuEventSynchronize(CUevent hEvent) {
  if (!is_event(hEvent))
    return CUDA_ERROR_INVALID_HANDLE;
  CUcontext ctx = hEvent->ctx;
  CUresult result = vgx_sim_check(ctx);
  if (result != CUDA_SUCCESS)
    return result;
  vgx_sim_lock();
  if ((result = vgx_sim_capture_event_locked(hEvent)) != CUDA_SUCCESS) {
    vgx_sim_unlock();
    return result;
  }
  struct vgx_sim_marker *marker = hEvent->marker;
  if (marker) {
    marker->refs++; /* the event may be recorded again or destroyed meanwhile */
    while (!marker->done)
      vgx_sim_wait_progress_locked();
    vgx_sim_marker_unref_locked(marker);
  }
  result = ctx->sticky;
  vgx_sim_unlock();
  return result;
}

CUresult vgx_sim_cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd) {
  if (!is_event(hStart) || !is_event(hEnd))
    return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = vgx_sim_check(hStart->ctx);
  if (result != CUDA_SUCCESS)
    return result;
  if (!pMilliseconds)
    return CUDA_ERROR_INVALID_VALUE;
  vgx_sim_lock();
  const struct vgx_sim_marker *start = hStart->marker, *end = hEnd->marker;
  if (hStart->ctx != hEnd->ctx || !start || !end || !start->timed || !end->timed)
    result = CUDA_ERROR_INVALID_HANDLE;
  else if (!start->done || !end->done)
    result = CUDA_ERROR_NOT_READY;
  else
    *pMilliseconds = (float)((double)(int64_t)(end->time_ns - start->time_ns) * 1e-6);
  vgx_sim_unlock();
  return result;
}

struct host_call {
  struct vgx_sim_op op;
  CUhostFn fn;
  void *data;
};

static CUresult run_host_call(struct vgx_sim_op *op) {
  struct host_call *call = (struct host_call *)op;
  call->fn(call->data);
  return CUDA_SUCCESS;
}

CUresult vgx_sim_host_create(const CUDA_HOST_NODE_PARAMS *params, struct vgx_sim_op **op) {
  if (!params || !params->fn)
    return CUDA_ERROR_INVALID_VALUE;
  struct host_call *call = calloc(1, sizeof *call);
  if (!call)
    return CUDA_ERROR_OUT_OF_MEMORY;
  call->op = (struct vgx_sim_op){.run = run_host_call, .destroy = vgx_sim_op_destroy, .kind = VGX_SIM_OP_HOST};
  call->fn = params->fn;
  call->data = params->userData;
  *op = &call->op;
  return CUDA_SUCCESS;
}

void vgx_sim_host_params(const struct vgx_sim_op *op, CUDA_HOST_NODE_PARAMS *params) {
  const struct host_call *call = (const struct host_call *)op;
  *params = (CUDA_HOST_NODE_PARAMS){.fn = call->fn, .userData = call->data};
}

CUresult vgx_sim_cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData) {
  CUstream stream;
  CUresult result = vgx_sim_enter_stream(hStream, NULL, &stream);
  if (result != CUDA_SUCCESS)
    return result;
  struct vgx_sim_op *op;
  result = vgx_sim_host_create(&(CUDA_HOST_NODE_PARAMS){.fn = fn, .userData = userData}, &op);
  return result == CUDA_SUCCESS ? vgx_sim_submit(stream, op, VGX_SIM_QUEUE) : result;
}
