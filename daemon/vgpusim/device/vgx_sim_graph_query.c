/* Queries of graphs and their nodes, and changes of single nodes. Locking: the runtime lock. */
#include "vgx_sim_copy.h"
#include "vgx_sim_graph_node.h"
#include "vgx_sim_launch.h"
#include "vgx_sim_runtime.h"
#include "vgx_sim_set.h"

#include <string.h>

CUresult vgx_sim_cuGraphDestroyNode(CUgraphNode hNode) {
  if (!vgx_sim_is_node(hNode))
    return CUDA_ERROR_INVALID_VALUE;
  vgx_sim_lock();
  bool capturing = hNode->graph->capturing; /* the capture refers to nodes by their index */
  bool stays = vgx_sim_graph_has_locked(hNode->graph, true);
  if (!capturing && !stays)
    vgx_sim_node_remove_locked(hNode);
  vgx_sim_unlock();
  if (stays) /* the manual: a node of a graph that has nodes of memory cannot be destroyed */
    return CUDA_ERROR_NOT_SUPPORTED;
  if (capturing)
    return CUDA_ERROR_NOT_PERMITTED;
  vgx_sim_node_destroy(hNode);
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v2 *nodeParams) {
  if (!vgx_sim_node_does(hNode, VGX_SIM_NODE_KERNEL) || !nodeParams)
    return CUDA_ERROR_INVALID_VALUE;
  vgx_sim_launch_params(hNode->work->op, nodeParams);
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS *nodeParams) {
  if (!vgx_sim_node_does(hNode, VGX_SIM_NODE_MEMSET) || !nodeParams)
    return CUDA_ERROR_INVALID_VALUE;
  vgx_sim_fill_params(hNode->work->op, nodeParams);
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS *nodeParams) {
  CUcontext ctx;
  struct vgx_sim_op *op;
  if (!vgx_sim_node_does(hNode, VGX_SIM_NODE_MEMSET))
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = vgx_sim_memset_op(nodeParams, NULL, &ctx, &op);
  return result == CUDA_SUCCESS ? vgx_sim_node_change(hNode, VGX_SIM_NODE_MEMSET, ctx, op) : result;
}

CUresult vgx_sim_cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D *nodeParams) {
  if (!vgx_sim_node_does(hNode, VGX_SIM_NODE_MEMCPY) || !nodeParams)
    return CUDA_ERROR_INVALID_VALUE;
  vgx_sim_copy_params(hNode->work->op, nodeParams);
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D *nodeParams) {
  CUcontext ctx;
  struct vgx_sim_op *op;
  if (!vgx_sim_node_does(hNode, VGX_SIM_NODE_MEMCPY))
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = vgx_sim_memcpy_op(nodeParams, NULL, &ctx, &op);
  return result == CUDA_SUCCESS ? vgx_sim_node_change(hNode, VGX_SIM_NODE_MEMCPY, ctx, op) : result;
}
