/* Why calls failed, in the host's words: told to the person in front of the program, and to programs that ask for the
 * JIT compiler's log. */
#ifndef VGS_REASON_H
#define VGS_REASON_H

#include "vgw_cuda.h"
#include <stddef.h>

/* The session's hook: fetch what the host has to say. */
void vgs_reasons_fetch(void);

/* A kernel of this library cannot run here, although the program has asked for it: `result` ends the context on a
 * simulated device, where a card would have run it, so that a program that does not look cannot go on. */
CUresult vgs_reason_no_kernel(CUresult result);

/* The log buffers among JIT options. `start` before the work, `finish` with its result: what the host said to this
 * thread meanwhile goes into the error log, and both sizes become those of the texts. `values` is written. */
void vgs_jit_log_start(void);
void vgs_jit_log_finish(CUresult result, unsigned count, const int *options, void **values);

#endif
