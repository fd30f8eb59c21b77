/* The driver library. */
#ifndef VGS_RT_OPEN_H
#define VGS_RT_OPEN_H

#include "vgs_profiling.h"
#include "vgs_rt_driver.h"
#include <stdbool.h>

/* The driver's functions: the forms whose NULL stream is the legacy default stream, and those where it is the calling
 * thread's. Filled by vgs_rt_open. */
extern struct vgs_rt_driver vgs_rt_driver_legacy, vgs_rt_driver_per_thread;

/* The table of vgpu's libcuda by which a profiler sees this library's calls. NULL: another libcuda, or none yet. */
extern const struct vgs_profiling *vgs_rt_profiling;
static inline bool vgs_rt_observed(void) {
  return vgs_rt_profiling && __atomic_load_n(vgs_rt_profiling->observed, __ATOMIC_RELAXED);
}

/* Open libcuda.so.1 and fill the tables. False: there is none, or it is not a driver library. The caller calls it only
 * once. */
bool vgs_rt_open(void);

#endif
