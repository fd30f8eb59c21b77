/* What an exported function needs before its body. */
#ifndef VGS_RT_INIT_H
#define VGS_RT_INIT_H

#include "vgs_rt.h"
#include <stdbool.h>

/* Open the driver library, once. False: there is none, or not a driver library. */
bool vgs_rt_load(void);

/* What an exported function needs before its body: nothing; an initialised driver; a current context as well. The first
 * error of initialising is kept for the process, as NVIDIA's runtime keeps it. */
static inline int vgs_rt_enter_nothing(void) { return CUDA_SUCCESS; }
int vgs_rt_enter_driver(void);
int vgs_rt_enter_context(void);

#endif
