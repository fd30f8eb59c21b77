/* The CUDA runtime as local logic over a driver library. It keeps what the driver does not: the program's registered
 * device code, each thread's device and last error, and the configuration of the launch being made. It sends nothing
 * itself; libcuda.so.1, vgpu's or NVIDIA's, is opened at the first call that needs it. */
#ifndef VGS_RT_H
#define VGS_RT_H

#include "vgs_rt_layout.h"
#include "vgs_rt_open.h"
#include <stdbool.h>

/* Error codes of the runtime that the driver does not have; all others are the same numbers in both. */
enum {
  VGS_RT_INVALID_CONFIGURATION = 9,
  VGS_RT_INVALID_PITCH = 12,
  VGS_RT_INVALID_SYMBOL = 13,
  VGS_RT_INVALID_COPY_DIRECTION = 21,
  VGS_RT_INSUFFICIENT_DRIVER = 35,
  VGS_RT_MISSING_CONFIGURATION = 52,
  VGS_RT_INVALID_DEVICE_FUNCTION = 98,
};

#endif
