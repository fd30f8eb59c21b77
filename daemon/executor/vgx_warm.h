/* A backend whose context is created before its client connects. */
#ifndef VGX_WARM_H
#define VGX_WARM_H

#include <stdint.h>

struct vgx_backend;

/* The same backend with the primary context of `device` already created for the next client; once in a process. NULL:
 * it could not be created, for instance because the device has no memory left. */
const struct vgx_backend *vgx_warm_backend(const struct vgx_backend *backend, int32_t device);

#endif
