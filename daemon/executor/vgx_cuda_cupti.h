/* Measuring what a real device does with the host's own CUPTI. */
#ifndef VGX_CUDA_CUPTI_H
#define VGX_CUDA_CUPTI_H

#include "vgw_activity.h"
#include <stdbool.h>

/* Open the host's CUPTI, before the worker gives up files. False: there is none. */
bool vgx_cuda_cupti_open(void);

/* Have it record, and put what it recorded; NULL: no longer. False: it refuses. */
bool vgx_cuda_cupti_measure(void (*put)(const struct vgw_activity *activity, const char *name));

/* What the calling thread submits from now on belongs to this call; 0: to none. */
void vgx_cuda_cupti_correlate(uint64_t correlation);

/* Put all that has ended. */
void vgx_cuda_cupti_flush(void);

#endif
