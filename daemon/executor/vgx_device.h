/* Devices in and out of service (vgpud/devices/presence.py). */
#ifndef VGX_DEVICE_H
#define VGX_DEVICE_H

#include "vgw_cuda.h"
#include <stdint.h>

struct vgx_session;

/* Called before a context is made on a device: whether the device is in service. Records that the session uses it. */
CUresult vgx_device_enter(struct vgx_session *s, int32_t device);

#endif
