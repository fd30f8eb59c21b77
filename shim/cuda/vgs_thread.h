/* The calling thread's stack of contexts. Entries may die while they lie on it; they are looked up again at every use.
 */
#ifndef VGS_THREAD_H
#define VGS_THREAD_H

#include "vgw_cuda.h"
#include <stdbool.h>
#include <stdint.h>

unsigned vgs_thread_depth(void);
CUcontext vgs_thread_top(void);          /* NULL for an empty stack */
bool vgs_thread_push(CUcontext context); /* false: full */
CUcontext vgs_thread_pop(void);

/* The top belongs to a session that was lost. */
bool vgs_thread_top_is_stale(void);

#endif
