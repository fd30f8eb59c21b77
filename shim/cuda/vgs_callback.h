#ifndef VGS_CALLBACK_H
#define VGS_CALLBACK_H

#include "vgs_work.h"
#include "vgw_cuda.h"
#include <stdbool.h>

/* Whether some host function was enqueued and has not returned yet, or graphs that were launched have some: the
 * program's memory may change in stream order. */
bool vgs_callback_pending(void);
void vgs_callback_in_graph(int change); /* +1 or -1: a launched graph that has host functions */

/* Start the service thread that asks for callbacks, if it does not run. */
CUresult vgs_callback_start(void);

/* Have an internal function called when a stream has finished all earlier work. On an error it will not be called. */
CUresult vgs_callback_after(CUstream stream, CUhostFn function, void *argument);

/* Clear `works` once the launches that may still use them are over; the last one is in `stream` of a context. A
 * callback is pending until then. False: the callback could not be enqueued, and the work is never cleared. */
bool vgs_works_clear_after(struct vgs_works *works, CUstream stream, uint32_t context_id);

/* Join the service thread, if there is one, and forget callbacks that never came due. The connection is shut down
 * already, so the thread does not wait for it; a callback of the program's that is running is waited for, one second at
 * most. */
void vgs_callback_fini(void);

#endif
