/* The CUDA runtime as local logic over a driver library. It keeps what the driver does not: the program's registered
 * device code, each thread's device and last error, and the configuration of the launch being made. It sends nothing
 * itself; libcuda.so.1, ours or NVIDIA's, is opened at the first call that needs it. */
#ifndef VGS_RT_H
#define VGS_RT_H

#include "vgs_rt_driver.h"
#include "vgs_rt_layout.h"
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

/* The driver's functions: the forms whose NULL stream is the legacy default stream, and those where it is the calling
 * thread's. Filled by vgs_rt_load. */
extern struct vgs_rt_driver vgs_rt_driver_legacy, vgs_rt_driver_per_thread;

/* Open libcuda.so.1 and fill the tables, once. False: there is none, or not a driver library. */
bool vgs_rt_load(void);

/* What an exported function needs before its body: nothing; an initialised driver; a current context as well. The first
 * error of initialising is kept for the process, as NVIDIA's runtime keeps it. */
static inline int vgs_rt_enter_nothing(void) { return CUDA_SUCCESS; }
int vgs_rt_enter_driver(void);
int vgs_rt_enter_context(void);

/* The end of every exported function: an error becomes the thread's last error. Returns `result`. */
int vgs_rt_leave(const char *name, int result);

/* Number of devices; after vgs_rt_enter_driver. */
int vgs_rt_device_count(void);

/* For vgs_rt_enter_driver alone: make room for the devices' primary contexts. */
int vgs_rt_context_init(int device_count);
void vgs_rt_context_fini(void);

/* The primary context of a device, retained for this library. */
int vgs_rt_primary(int device, CUcontext *context);

/* The device that the calling thread works on. */
int vgs_rt_current_device(int *device);

/* Held around a fork, so that the child finds them free. */
void vgs_rt_context_lock(void);
void vgs_rt_context_unlock(void);

#endif
