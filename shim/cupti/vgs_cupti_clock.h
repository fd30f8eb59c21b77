/* Three clocks: the profiler's, in which all records are; this process's monotonic one, which relates the two others;
 * and the worker's. */
#ifndef VGS_CUPTI_CLOCK_H
#define VGS_CUPTI_CLOCK_H

#include "vgs_profiling.h"
#include <stdint.h>

/* Now, in the profiler's clock: what cuptiActivityRegisterTimestampCallback gave, else the time of day in ns. */
uint64_t vgs_cupti_now(void);

/* Begin to relate the clocks: nothing measured before counts. */
void vgs_cupti_clock_start(void);

/* Measure the profiler's clock against this process's; with `driver`, the worker's, too. Called before the worker's
 * records are read, under the same lock. */
void vgs_cupti_clock_measure(const struct vgs_profiling *driver);

/* A time of the worker's in the profiler's clock, by the last two measurements. */
uint64_t vgs_cupti_time_of_worker(uint64_t worker_ns);

#endif
