/* Parameters of copy nodes. */
#ifndef VGS_GRAPH_COPY_H
#define VGS_GRAPH_COPY_H

#include "vgs_copy_box.h"
#include "vgs_objects.h"

/* What cuGraphMemcpyNodeGetParams returns of a node from now on. */
void vgs_graph_copy_set(struct vgs_graph_node *node, const CUDA_MEMCPY3D *params);

/* Arrays in a worker's answer become the program's. */
CUresult vgs_copy_find_arrays(CUDA_MEMCPY3D *copy);

/* Change the parameters of a node. NOT_SUPPORTED: the old or the new copy needs a host function of the client. */
CUresult vgs_graph_copy_resolve(const struct vgs_graph_node *node, const CUDA_MEMCPY3D *params,
                                struct vgs_copy_in_place *copy);

#endif
