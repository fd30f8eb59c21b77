/* A context's settings of core dumps. */
#ifndef VGS_COREDUMP_H
#define VGS_COREDUMP_H

#include "vgs_objects.h"

/* Forget them; for a context's end. */
void vgs_coredump_destroy(struct vgs_context *context);

#endif
