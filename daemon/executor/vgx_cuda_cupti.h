/* Measuring what a real device does with the host's own CUPTI. */
#ifndef VGX_CUDA_CUPTI_H
#define VGX_CUDA_CUPTI_H

#include "vgw_activity.h"
#include <stdbool.h>

/* Open the host's CUPTI, before the worker gives up files. False: there is none. */
bool vgx_cuda_cupti_open(void);

/* Start recording, with `put` for each record; NULL: stop. *what: bits VGW_MEASURE_*, of which those that CUPTI does
 * not measure are cleared. False: CUPTI refuses. */
bool vgx_cuda_cupti_measure(void (*put)(const struct vgw_activity *activity, const char *name), unsigned *what);

/* The calling thread's submissions belong to this call from now on; 0: to none. */
void vgx_cuda_cupti_correlate(uint64_t correlation);

/* Put the records of all operations that have ended. */
void vgx_cuda_cupti_flush(void);

#endif
