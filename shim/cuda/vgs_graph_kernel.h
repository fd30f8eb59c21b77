/* The parameters of kernel nodes. */
#ifndef VGS_GRAPH_KERNEL_H
#define VGS_GRAPH_KERNEL_H

#include "vgs_launch.h"

struct vgs_node_kernel {
  struct vgs_launch launch;
  char *block; /* the packed parameters, malloc'ed */
};
#define VGS_NODE_KERNEL __attribute__((cleanup(vgs_node_kernel_fini))) struct vgs_node_kernel
void vgs_node_kernel_fini(struct vgs_node_kernel *kernel);

/* Check the parameters and pack them. Errors: as for a launch. */
CUresult vgs_node_kernel_pack(struct vgs_node_kernel *kernel, const CUDA_KERNEL_NODE_PARAMS_v2 *params);

/* Set what cuGraphKernelNodeGetParams returns for the node. Takes ownership of the packed parameters. */
void vgs_node_kernel_set(struct vgs_graph_node *node, const CUDA_KERNEL_NODE_PARAMS_v2 *params,
                         struct vgs_node_kernel *kernel);

#endif
