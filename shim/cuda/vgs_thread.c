#include "vgs_thread.h"
#include "vgs_enter.h"
#include "vgs_session.h"

enum { STACK_DEPTH = 64 }; /* in thread-local storage, so bounded; programs push one or two */

static _Thread_local struct {
  unsigned depth;
  CUcontext contexts[STACK_DEPTH];
} stack;

_Thread_local bool vgs_per_thread_default;

CUstream vgs_stream_per_thread(CUstream stream) { return stream ? stream : CU_STREAM_PER_THREAD; }

unsigned vgs_thread_depth(void) { return stack.depth; }
CUcontext vgs_thread_top(void) { return stack.depth ? stack.contexts[stack.depth - 1] : NULL; }

bool vgs_thread_push(CUcontext context) {
  if (stack.depth == STACK_DEPTH)
    return false;
  stack.contexts[stack.depth++] = context;
  return true;
}

CUcontext vgs_thread_pop(void) { return stack.depth ? stack.contexts[--stack.depth] : NULL; }

bool vgs_thread_top_is_stale(void) {
  return stack.depth && (uint16_t)((uintptr_t)vgs_thread_top() >> 32) != vgs_session_epoch();
}
