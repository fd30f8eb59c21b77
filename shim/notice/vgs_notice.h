/* The administrator's notice: why this user sees no GPU, said once on stderr where policy is the reason.
 *
 * Policy is the reason if the administrator's marker exists, CUDA_VISIBLE_DEVICES is set and empty, and cuInit answered
 * CUDA_ERROR_NO_DEVICE. Anything else (another code, "-1", no marker) has other reasons, and nothing is shown. */
#ifndef VGS_NOTICE_H
#define VGS_NOTICE_H

#include "vgw_cuda.h"

/* To be called after each cuInit with its result: shows the notice if it is due. The program cannot notice it:
 * errno is kept, no descriptor stays open, no signal is raised, and it takes at most 0.2 s. On any unexpected error
 * nothing is shown; if only the session's record is at fault, the notice is shown once in each process. Thread-safe. A
 * forked child does not repeat its parent's notice. */
void vgs_notice_after_init(CUresult result);

#endif
