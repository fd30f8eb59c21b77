/* The part of vgx_limit.c for memory of graphs. */
#ifndef VGX_LIMIT_GRAPH_H
#define VGX_LIMIT_GRAPH_H

#include "vgx_backend.h"

/* Replace functions of `limited`. */
void vgx_limit_graphs(struct vgx_backend *limited);

#endif
