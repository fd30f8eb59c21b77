/* The host's explanations of failed calls, for the user on stderr and for programs that ask for the JIT compiler's log.
 */
#ifndef VGS_REASON_H
#define VGS_REASON_H

#include "vgw_cuda.h"
#include <stdbool.h>
#include <stddef.h>

/* The session's hook: fetch the host's explanations. */
void vgs_reasons_fetch(void);

/* Whether `result` says that an image cannot run on the current, simulated device. */
bool vgs_reason_is_refusal(CUresult result);

/* Until vgs_reason_deferred, reasons that this thread receives are not reported: whether they matter shows later. */
void vgs_reason_defer(void);
/* The reasons since vgs_reason_defer, malloc'ed; NULL: none. */
char *vgs_reason_deferred(void);

/* Report `text`, why `result` was returned; the context stays. */
void vgs_reason_report(CUresult result, const char *text);

/* End the context with `result`, and report `text`. */
void vgs_reason_end_context(CUresult result, const char *text);

/* The log buffers among JIT options. Call `start` before the work and `finish` with its result: the host's explanations
 * for this thread in between go into the error log, and both sizes in `values` become those of the texts. */
void vgs_jit_log_start(void);
void vgs_jit_log_finish(CUresult result, unsigned count, const int *options, void **values);

#endif
