/* A backend that is warm before its client comes. */
#ifndef VGX_WARM_H
#define VGX_WARM_H

#include <stdint.h>

struct vgx_backend;

/* The same backend with the primary context of `device` made already, for the client that will come; once in a process.
 * NULL when it cannot be made (no memory left on the device, say). */
const struct vgx_backend *vgx_warm_backend(const struct vgx_backend *backend, int32_t device);

#endif
