/* What every exported function checks first, and what belongs to the calling thread. */
#ifndef VGS_ENTER_H
#define VGS_ENTER_H

#include "vgs_objects.h"
#include "vgs_session.h"
#include "vgw_cuda.h"
#include <stdbool.h>
#include <stdint.h>

/* The calling thread's stack of contexts. Entries may die while they are on it; they are looked up again at every use.
 */
enum { VGS_THREAD_DEPTH = 64 }; /* in thread-local storage, so bounded; programs push one or two */

/* vgs_enter.c alone writes it. */
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

/* Whether the top of the stack belongs to a lost session. */
bool vgs_thread_top_is_stale(void);

/* The calling thread's current context if it is alive, else NULL. */
struct vgs_context *vgs_context_current(void);

/* The context that vgs_enter_context found for the current call; never NULL in functions that need one, even if another
 * thread is destroying it (object memory stays). */
extern VGS_THREAD_LOCAL struct vgs_context *vgs_context_entered;

/* The context of a handle, the current one for NULL. NULL if there is none or it is dead. */
struct vgs_context *vgs_context_find(CUcontext context);
bool vgs_context_is_alive(const struct vgs_context *context);

/* For functions that work before cuInit; returns 0. */
CUresult vgs_enter_none(void);

/* NOT_INITIALIZED before cuInit and in a forked child, DEINITIALIZED after the library's end. */
CUresult vgs_enter_init(void);

/* As vgs_enter_init, then: INVALID_CONTEXT without a current context, CONTEXT_IS_DESTROYED for a dead or not yet
 * retained one, then the session's sticky error, then the kernel fault that poisoned the process. */
CUresult vgs_enter_context(void);

/* As vgs_enter_context, for a function that acts in a stream: with no current context, enter the stream's context. */
CUresult vgs_enter_stream(CUstream stream);

/* What can divert a call from its shortest path: states of the process that most programs never have. */
enum vgs_diversion {
  VGS_CAPTURING = 1, /* a stream is being captured: set by vgs_capture.c */
  VGS_MIRRORING = 2, /* there are mirrored variables: set by vgs_mirror.c */
};
extern __attribute__((visibility("hidden"))) unsigned vgs_diversions; /* atomic; bits of enum vgs_diversion */
static inline bool vgs_diverted(enum vgs_diversion state) {
  return __atomic_load_n(&vgs_diversions, __ATOMIC_ACQUIRE) & state;
}
void vgs_divert(enum vgs_diversion state, bool on);

/* Set while an exported function's _ptds variant runs: its default stream is the thread's own. */
extern VGS_THREAD_LOCAL bool vgs_per_thread_default;

/* The stream a _ptsz variant means: the thread's own where the program passed 0. */
CUstream vgs_stream_per_thread(CUstream stream);

#endif
