/* Streams' order. */
#ifndef VGX_SIM_QUEUE_H
#define VGX_SIM_QUEUE_H

#include "vgx_sim_internal.h"

enum vgx_sim_submit_mode {
  VGX_SIM_QUEUE, /* return at once; the queue's threads run it */
  VGX_SIM_TRY,   /* run it on this thread if its turn is now, else do nothing and answer NOT_READY */
  VGX_SIM_WAIT,  /* run it on this thread if its turn is now, else queue it and sleep until it is done */
};
/* QUEUE takes ownership of `op`, which must have a `destroy`; with TRY and WAIT the caller keeps `op`, which has no
 * `destroy`, and gets its result. Returns the context's sticky error if it has one. */
CUresult vgx_sim_submit(CUstream stream, struct vgx_sim_op *op, enum vgx_sim_submit_mode mode);
/* The same with the runtime lock held, which this releases. For an operation whose marker others can see: it gets its
 * ticket before they can wait for the marker. Otherwise one that waits could come before it in the order of the
 * blocking streams, and neither would start. */
CUresult vgx_sim_submit_unlock(CUstream stream, struct vgx_sim_op *op, enum vgx_sim_submit_mode mode);
/* Wait for what was submitted before the call: to a stream (the legacy one: to every blocking stream) or to a context.
 */
CUresult vgx_sim_wait_stream(CUstream stream);
CUresult vgx_sim_wait_context(CUcontext ctx);
/* Of the operation that this thread runs; NULL: none. */
const struct CUgreenCtx_st *vgx_sim_running_green(void);
bool vgx_sim_stream_idle_locked(CUstream stream);
void vgx_sim_wait_progress_locked(void); /* sleep until something completes */
void vgx_sim_notify_locked(void);        /* something completed */
/* What `marker` stands for is done: whoever waits for it goes on. */
void vgx_sim_marker_complete_locked(struct vgx_sim_marker *marker);
/* Between these two calls no stream uses device memory. False: an operation did not end in time, and nothing is paused.
 */
bool vgx_sim_pause(uint32_t timeout_s);
void vgx_sim_resume(void);
/* The operation that this thread runs only reads a word between these two calls, so that vgx_sim_pause need not wait
 * for it. The second one returns when nothing is paused. */
void vgx_sim_word_wait_begin(void);
void vgx_sim_word_wait_end(void);
/* Free the stream once it has no work, waiters or use (runtime lock held). */
void vgx_sim_stream_free_unused_locked(CUstream stream);

/* Make `result` the context's sticky error and cancel its queued work. Runtime lock not held. */
void vgx_sim_fail_context(CUcontext ctx, CUresult result);

#endif
