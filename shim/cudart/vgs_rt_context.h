/* Devices, their primary contexts, and which of them a thread works on. */
#ifndef VGS_RT_CONTEXT_H
#define VGS_RT_CONTEXT_H

#include "vgs_rt.h"

/* Number of devices; after vgs_rt_enter_driver. */
int vgs_rt_device_count(void);

/* For vgs_rt_enter_driver alone: make room for the devices' primary contexts. */
int vgs_rt_context_init(int count);
void vgs_rt_context_fini(void);

/* The primary context of a device, retained for this library. */
int vgs_rt_primary(int device, CUcontext *context);

/* The device that the calling thread works on. */
int vgs_rt_current_device(int *device);

/* Make a context current if the thread has none, or if a reset has ended it. */
int vgs_rt_context_adopt(void);

/* Held around a fork, so that the child finds them free. */
void vgs_rt_context_lock(void);
void vgs_rt_context_unlock(void);

#endif
