#include "vgs_enter.h"
#include "vgs_session.h"

_Thread_local struct vgs_context *vgs_context_entered;

_Thread_local bool vgs_per_thread_default;

_Thread_local struct vgs_thread_stack vgs_thread_stack;

unsigned vgs_diversions;

void vgs_divert(enum vgs_diversion state, bool on) {
  if (on)
    __atomic_fetch_or(&vgs_diversions, state, __ATOMIC_ACQ_REL);
  else
    __atomic_fetch_and(&vgs_diversions, ~(unsigned)state, __ATOMIC_ACQ_REL);
}

bool vgs_thread_push(CUcontext context) {
  if (vgs_thread_stack.depth == VGS_THREAD_DEPTH)
    return false;
  vgs_thread_stack.contexts[vgs_thread_stack.depth++] = context;
  return true;
}

CUcontext vgs_thread_pop(void) {
  return vgs_thread_stack.depth ? vgs_thread_stack.contexts[--vgs_thread_stack.depth] : NULL;
}

bool vgs_thread_top_is_stale(void) {
  return vgs_thread_stack.depth && (uint16_t)((uintptr_t)vgs_thread_top() >> 32) != vgs_session_epoch();
}

bool vgs_context_is_alive(const struct vgs_context *context) {
  return __atomic_load_n(&context->active, __ATOMIC_ACQUIRE);
}

struct vgs_context *vgs_context_current(void) {
  struct vgs_context *context = vgs_object_find(VGW_KIND_CONTEXT, vgs_thread_top());
  return context && vgs_context_is_alive(context) ? context : NULL;
}

struct vgs_context *vgs_context_find(CUcontext handle) {
  if (!handle)
    return vgs_context_current();
  struct vgs_context *context = vgs_object_find(VGW_KIND_CONTEXT, handle);
  return context && vgs_context_is_alive(context) ? context : NULL;
}

CUresult vgs_enter_none(void) { return CUDA_SUCCESS; }

CUresult vgs_enter_init(void) {
  CUresult result = vgs_life_check();
  if (result)
    return result;
  struct vgs_context *context = vgs_context_current();
  vgs_thread_context_id = context ? context->wire_id : 0;
  return CUDA_SUCCESS;
}

static CUresult enter(struct vgs_context *context) {
  vgs_context_entered = context;
  vgs_thread_context_id = context->wire_id;
  CUresult result = vgs_session_error();
  return result ? result : vgs_session_fault();
}

CUresult vgs_enter_context(void) {
  CUresult result = vgs_life_check();
  if (result)
    return result;
  if (!vgs_thread_depth())
    return CUDA_ERROR_INVALID_CONTEXT;
  struct vgs_context *context = vgs_context_current();
  if (!context)
    return vgs_thread_top_is_stale() ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return enter(context);
}

CUresult vgs_enter_stream(CUstream handle) {
  if (vgs_thread_depth())
    return vgs_enter_context();
  CUresult result = vgs_life_check();
  if (result)
    return result;
  struct vgs_stream *stream = vgs_object_find(VGW_KIND_STREAM, handle);
  struct vgs_context *context = stream && stream->context ? vgs_context_find(stream->context) : NULL;
  if (!context || context->wire_id != stream->object.context_id)
    return CUDA_ERROR_INVALID_CONTEXT;
  return enter(context);
}

CUstream vgs_stream_per_thread(CUstream stream) { return stream ? stream : CU_STREAM_PER_THREAD; }
