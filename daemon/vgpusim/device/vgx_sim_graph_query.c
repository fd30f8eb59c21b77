/* Queries of graphs and their nodes, and changes of single nodes. Locking: the runtime lock. */
#include "vgx_sim_copy.h"
#include "vgx_sim_graph_node.h"
#include "vgx_sim_launch.h"
#include "vgx_sim_runtime.h"
#include "vgx_sim_set.h"

#include <string.h>

/* Remove a node. The nodes behind it move up, since a node's index is its place in the graph. */
static void remove_locked(CUgraphNode gone) {
  CUgraph graph = gone->graph;
  for (uint32_t i = 0; i < graph->count; i++) {
    CUgraphNode node = graph->nodes[i];
    uint32_t kept = 0;
    for (uint32_t k = 0; k < node->dependency_count; k++)
      if (node->dependencies[k] != gone->index) {
        node->edges[kept] = node->edges[k];
        node->dependencies[kept++] = node->dependencies[k] - (node->dependencies[k] > gone->index);
      }
    node->dependency_count = kept;
  }
  graph->count--;
  int64_t steps = 1 + (gone->child ? (int64_t)gone->child->steps : 0);
  for (uint32_t i = 0; i < gone->body_count; i++)
    steps += 1 + (int64_t)gone->bodies[i]->steps;
  vgx_sim_graph_grow_locked(graph, -steps);
  for (uint32_t i = gone->index; i < graph->count; i++) {
    graph->nodes[i] = graph->nodes[i + 1];
    graph->nodes[i]->index = i;
  }
}

CUresult vgx_sim_cuGraphDestroyNode(CUgraphNode hNode) {
  if (!vgx_sim_is_node(hNode))
    return CUDA_ERROR_INVALID_VALUE;
  vgx_sim_lock();
  bool capturing = hNode->graph->capturing; /* the capture refers to nodes by their index */
  bool stays = hNode->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || hNode->type == CU_GRAPH_NODE_TYPE_MEM_FREE;
  if (!capturing && !stays)
    remove_locked(hNode);
  vgx_sim_unlock();
  if (stays) /* the manual forbids destroying these nodes */
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
