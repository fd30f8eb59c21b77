/* Executing one record: look up what it names, enter its context, dispatch, answer. */
#include "vgx_execute.h"
#include "vgx_gate.h"
#include "vgx_meter.h"
#include "vgx_quota.h"
#include "vgx_recording.h"

static CUresult enter_context(struct executor_thread *t, uint32_t id, void *context) {
  if (t->context == id)
    return CUDA_SUCCESS;
  CUresult result = t->s->backend->cuCtxSetCurrent(context);
  t->context = result == CUDA_SUCCESS ? id : 0;
  return result;
}

/* Take the fixed fields, hold the objects that they name, enter the context; the operation takes the rest. */
static CUresult run_operation(struct executor_thread *t, uint32_t context_id, struct vgw_cursor *in,
                              const struct vgx_operation *op, struct vgx_reply *out) {
  void *context = NULL, *objects[VGX_HANDLES_MAX];
  const void *fixed = op->fixed_nbytes ? vgw_take(in, op->fixed_nbytes) : in->cur;
  if (!fixed)
    return vgx_violation(t->s, "short record");
  bool outside = op->flags & (VGX_ABOUT_CHANNEL | VGX_OVERTAKES);
  if (outside && !(op->flags & VGX_NEEDS_CONTEXT))
    context_id = 0;
  t->flags = op->flags;
  /* Nodes of a graph are found through it, so handles do not keep them: their calls take turns. A thread that waits
   * here holds no object yet, so a thread that destroys an object does not wait for this one. */
  if (op->flags & VGX_ALONE)
    pthread_mutex_lock(&t->s->alone_lock);
  CUresult result = vgx_record_ref(t, op, context_id, fixed, &context, objects);
  if (result == CUDA_SUCCESS && context)
    result = enter_context(t, context_id, context);
  if (result == CUDA_SUCCESS && op->flags & VGX_SUBMITS && vgx_gate_turns) {
    struct vgx_entry entry = vgx_gate_enter(t, op, fixed, objects);
    result = op->dispatch(t->s, fixed, objects, in, out);
    vgx_gate_leave(t, &entry, result);
  } else if (result == CUDA_SUCCESS) {
    result = op->dispatch(t->s, fixed, objects, in, out);
  }
  if (!context && !outside)
    t->context = 0; /* the call may have changed the driver's current context, as cuCtxCreate does */
  vgx_record_unref(t);
  if (op->flags & VGX_ALONE)
    pthread_mutex_unlock(&t->s->alone_lock);
  return result;
}

/* The error of a queued call, which is reported once. Clears the notice; a failure at the same time sets it again. */
static CUresult take_deferred(struct vgx_session *s) {
  CUresult result = atomic_exchange(&s->deferred, CUDA_SUCCESS);
  vgx_notice(s, VGW_NOTICE_FAILED, false);
  if (atomic_load(&s->deferred))
    vgx_notice(s, VGW_NOTICE_FAILED, true);
  return result;
}

/* Take the number of the program's call from the record; 0 if the backend measures nothing. */
static bool take_correlation(struct vgx_session *s, struct vgw_cursor *in, uint64_t *correlation) {
  const uint64_t *number = vgw_take(in, sizeof *number);
  if (!number) {
    vgx_violation(s, "short record");
    return false;
  }
  *correlation = s->backend->correlate ? *number : 0;
  return true;
}

/* Answer, or keep the error of a queued call for a later answer. */
static void report(struct executor_thread *t, const struct vgw_header *h, const struct vgx_operation *op,
                   CUresult result, uint64_t recorded, struct vgx_reply *out) {
  struct vgx_session *s = t->s;
  if (!(h->flags & VGW_WANT_REPLY)) {
    if (recorded)
      vgx_recording_answer(s, recorded, &(struct vgw_header){.length = sizeof *h, .context = (uint32_t)result}, out);
    if (result != CUDA_SUCCESS && vgx_defer(s, result))
      vgx_log(s, 6, "queued %s failed with %d; the next blocking call returns it", op->name, result);
    return;
  }
  if (result == CUDA_SUCCESS && (op->flags & (VGX_BLOCKS | VGX_ABOUT_CHANNEL)) == VGX_BLOCKS &&
      atomic_load(&s->deferred))
    result = take_deferred(s);
  if (result != CUDA_SUCCESS)
    out->length = out->private_nbytes = 0;
  struct vgw_header reply = {
      .length = out->length ? out->length : sizeof reply,
      .opcode = h->opcode,
      .flags = (uint16_t)((s->backend->output_pending && s->backend->output_pending() ? VGW_OUTPUT_PENDING : 0) |
                          (vgx_reason_pending() ? VGW_REASON_PENDING : 0)),
      .sequence = h->sequence,
      .context = (uint32_t)result,
  };
  if (recorded)
    vgx_recording_answer(s, recorded, &reply, out);
  t->answer(t, &reply, out);
}

void vgx_execute(struct executor_thread *t, const struct vgw_header *h, struct vgw_cursor *in,
                 const struct vgx_operation *op) {
  struct vgx_session *s = t->s;
  struct vgx_reply out = {.record = t->output, .shared = t->shared};
  bool waits = h->flags & VGW_WANT_REPLY;
  uint64_t correlation = 0, recorded = vgx_recording_on ? vgx_recording_call(s, h, in) : 0;
  if (h->flags & VGW_CORRELATED && !take_correlation(s, in, &correlation))
    return;
  if (s->options->calls_per_s && !(op->flags & VGX_ABOUT_CHANNEL))
    vgx_pace(s);
  if (correlation)
    s->backend->correlate(correlation);
  uint64_t begun_ns = vgx_meter_begin(h->opcode, waits);
  CUresult result = run_operation(t, h->context, in, op, &out);
  uint64_t nbytes = h->length + (uint64_t)out.length;
  if (!t->shared) /* the reply is sent, which may take the network's time */
    vgx_meter_end(h->opcode, waits, begun_ns, nbytes);
  if (correlation)
    s->backend->correlate(0);
  if (!atomic_load(&s->ended))
    report(t, h, op, result, recorded, &out);
  if (t->shared) /* behind the reply, for which the client waits */
    vgx_meter_end(h->opcode, waits, begun_ns, nbytes);
}
