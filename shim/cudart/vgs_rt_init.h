/* The preconditions of an exported function's body. */
#ifndef VGS_RT_INIT_H
#define VGS_RT_INIT_H

#include "vgs_rt.h"
#include <stdbool.h>

/* Open the driver library, once. False: there is none, or not a driver library. */
bool vgs_rt_load(void);

/* The preconditions of an exported function's body: none; an initialised driver; also a current context. The first
 * error of initialising is kept for the process, as NVIDIA's runtime keeps it. */
static inline int vgs_rt_enter_nothing(void) { return CUDA_SUCCESS; }
int vgs_rt_enter_driver(void);
int vgs_rt_enter_context(void);

#endif
