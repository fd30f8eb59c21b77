/* Parameters of copy nodes. */
#ifndef VGS_GRAPH_COPY_H
#define VGS_GRAPH_COPY_H

#include "vgs_copy_box.h"
#include "vgs_objects.h"

/* Set what cuGraphMemcpyNodeGetParams returns for a node. */
void vgs_graph_copy_set(struct vgs_graph_node *node, const CUDA_MEMCPY3D *params);

/* Replace the arrays in a worker's answer by the program's handles. */
CUresult vgs_copy_find_arrays(CUDA_MEMCPY3D *copy);

/* Change the parameters of a node. NOT_SUPPORTED: the old or the new copy needs a host function of the client. */
CUresult vgs_graph_copy_resolve(const struct vgs_graph_node *node, const CUDA_MEMCPY3D *params,
                                struct vgs_copy_in_place *copy);

#endif
