#include "vgs_thread.h"
#include "vgs_session.h"

_Thread_local struct vgs_thread_stack vgs_thread_stack;

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
