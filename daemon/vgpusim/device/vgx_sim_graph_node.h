/* Creates the work of graph nodes from their parameters. */
#ifndef VGX_SIM_GRAPH_NODE_H
#define VGX_SIM_GRAPH_NODE_H

#include "vgx_sim_graph.h"

/* The work of a node with these parameters, and the context it is for. A kernel is launched in the form of `old`, the
 * work that it replaces; NULL: none. */
CUresult vgx_sim_kernel_op(const CUDA_KERNEL_NODE_PARAMS_v2 *params, const struct vgx_sim_work *old, CUcontext *ctx,
                           struct vgx_sim_op **op);
CUresult vgx_sim_memcpy_op(const CUDA_MEMCPY3D *params, CUcontext given, CUcontext *ctx, struct vgx_sim_op **op);
CUresult vgx_sim_memset_op(const CUDA_MEMSET_NODE_PARAMS *params, CUcontext given, CUcontext *ctx,
                           struct vgx_sim_op **op);

#endif
