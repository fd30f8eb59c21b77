/* Work of the device: which calls have submitted some, and the records of it, which the worker measures. */
#ifndef VGS_CUPTI_DEVICE_H
#define VGS_CUPTI_DEVICE_H

#include "vgs_cupti_tables.h"
#include "vgs_profiling.h"
#include <stdbool.h>

/* The call is about to submit work of the device. Its records carry a number from now on. False: the worker does not
 * measure it. No lock held. */
bool vgs_cupti_submit(const struct vgs_api_call *call, const struct vgs_cupti_function *function);

/* A call for which vgs_cupti_submit returned true has returned. */
void vgs_cupti_submitted(void);

/* Read what the worker has measured, into the queue. Returns a CUptiResult: UNKNOWN if records are lost because the
 * worker is gone. No lock held. */
int vgs_cupti_drain(void);

/* The same, only if many records may be waiting. */
void vgs_cupti_drain_often(void);

/* Stop measuring in the worker. */
void vgs_cupti_stop_measuring(void);

/* In a forked child: forget all submitted calls. */
void vgs_cupti_reset_calls(void);

#endif
