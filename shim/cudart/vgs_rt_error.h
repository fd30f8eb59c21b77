/* Each thread's last error. */
#ifndef VGS_RT_ERROR_H
#define VGS_RT_ERROR_H

#include "vgs_rt.h"

/* The end of every exported function: an error becomes the thread's last error. Returns `result`. */
int vgs_rt_leave(const char *name, int result);

#endif
