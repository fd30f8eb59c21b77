#ifndef VGS_CALLBACK_H
#define VGS_CALLBACK_H

#include "vgs_work.h"
#include "vgw_cuda.h"
#include <stdbool.h>

/* Whether a host function was enqueued and has not returned yet, or a launched graph contains host functions: the
 * program's memory may then change in stream order. */
bool vgs_callback_pending(void);
void vgs_callback_in_graph(int change); /* +1 or -1: a launched graph that has host functions */

/* Start the service thread that asks for callbacks, if it does not run. */
CUresult vgs_callback_start(void);

/* Have an internal function called when a stream has finished all earlier work. On an error it will not be called. */
CUresult vgs_callback_after(CUstream stream, CUhostFn function, void *argument);

/* Clear `works` when the last launch that may use them, which is in `stream` of the context, is over. A callback is
 * pending until then. False: the callback could not be enqueued, and the works are never cleared. */
bool vgs_works_clear_after(struct vgs_works *works, CUstream stream, uint32_t context_id);

/* Join the service thread, if there is one, and forget callbacks that never came due. The connection is
 * already shut down, so it does not block the thread; a running callback of the program gets one second to
 * return. */
void vgs_callback_fini(void);

#endif
