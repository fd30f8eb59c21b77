/* What the client knows of a context's limits. */
#ifndef VGS_LIMIT_H
#define VGS_LIMIT_H

#include "vgs_objects.h"

/* The context's life ends: its next one begins with the device's own limits. */
void vgs_limit_forget(struct vgs_context *context);

#endif
