/* Parameters of copy nodes. */
#ifndef VGS_GRAPH_COPY_H
#define VGS_GRAPH_COPY_H

#include "vgs_copy_box.h"
#include "vgs_objects.h"

/* Set what cuGraphMemcpyNodeGetParams returns for a node. */
void vgs_graph_copy_set(struct vgs_graph_node *node, const CUDA_MEMCPY3D *params);

/* A worker's answer to cuGraphMemcpyNodeGetParams as the program receives it: with its own handles of arrays, or, of a
 * copy in halves, the parameters of the copy that `callback` makes. */
CUresult vgs_graph_copy_found(uint32_t callback, CUDA_MEMCPY3D *copy);

#endif
