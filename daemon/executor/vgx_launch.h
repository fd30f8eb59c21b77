/* Launches, and the client's functions that the device's work runs. */
#ifndef VGX_LAUNCH_H
#define VGX_LAUNCH_H

#include "vgx_session.h"

/* The client's function `id` as the driver takes it: a host function, and what it is called with. A second call with
 * the same id may be due before the first is done, if the id is VGW_CALLBACK_OF_GRAPH. */
CUDA_HOST_NODE_PARAMS vgx_callback_of(struct vgx_session *s, uint32_t id);

#endif
