/* The part of vgx_limit.c for what the driver itself takes. */
#ifndef VGX_LIMIT_DRIVER_H
#define VGX_LIMIT_DRIVER_H

#include "vgx_backend.h"

/* Replace the functions of `limited` that load modules and libraries. */
void vgx_limit_driver(struct vgx_backend *limited);

/* Something of the driver's has been made on a device: count it. OUT_OF_MEMORY: the tenant may not have it, so the
 * caller destroys it, and calls vgx_limit_unmade(). */
CUresult vgx_limit_made(CUdevice device);
void vgx_limit_unmade(CUdevice device);

#endif
