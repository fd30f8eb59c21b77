/* A context's settings of core dumps. */
#ifndef VGS_COREDUMP_H
#define VGS_COREDUMP_H

#include "vgs_objects.h"

/* Free a context's settings; called when the context ends. */
void vgs_coredump_destroy(struct vgs_context *context);

#endif
