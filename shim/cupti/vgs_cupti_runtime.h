/* NVIDIA's runtime, which reports its calls to NVIDIA's CUPTI alone. */
#ifndef VGS_CUPTI_RUNTIME_H
#define VGS_CUPTI_RUNTIME_H

#include "vgs_cupti_tables.h"
#include "vgs_profiling.h"

/* The callback id of the call of NVIDIA's runtime that does its work by this driver call, which is in progress on this
 * thread; 0: none is known. No lock held. */
uint32_t vgs_cupti_runtime_of(const struct vgs_api_call *call, const struct vgs_cupti_function *function);

/* Log, once, which calls of NVIDIA's runtime are recorded, if the process has it. */
void vgs_cupti_explain_runtime(void);

#endif
