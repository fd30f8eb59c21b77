/* The calling thread's stack of contexts. Entries may die while they lie on it; they are looked up again at every use.
 */
#ifndef VGS_THREAD_H
#define VGS_THREAD_H

#include "vgs_session.h"

enum { VGS_THREAD_DEPTH = 64 }; /* in thread-local storage, so bounded; programs push one or two */

/* vgs_thread.c alone writes it. */
extern VGS_THREAD_LOCAL struct vgs_thread_stack {
  unsigned depth;
  CUcontext contexts[VGS_THREAD_DEPTH];
} vgs_thread_stack;

static inline unsigned vgs_thread_depth(void) { return vgs_thread_stack.depth; }

/* NULL for an empty stack. */
static inline CUcontext vgs_thread_top(void) {
  return vgs_thread_stack.depth ? vgs_thread_stack.contexts[vgs_thread_stack.depth - 1] : NULL;
}

bool vgs_thread_push(CUcontext context); /* false: full */
CUcontext vgs_thread_pop(void);

/* The top belongs to a session that was lost. */
bool vgs_thread_top_is_stale(void);

#endif
