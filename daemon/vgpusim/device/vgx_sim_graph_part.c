/* Nodes that hold a host function or a graph, and clones of graphs. Locking: the runtime lock; see vgx_sim_graph.h. */
#include "vgx_sim_graph.h"
#include "vgx_sim_runtime.h"
#include "vgx_sim_stream.h"

#include <stdlib.h>

static CUresult copy(CUgraph original, CUgraph *clone) {
  vgx_sim_lock();
  bool allowed = vgx_sim_graph_may_be_copied_locked(original);
  *clone = allowed ? vgx_sim_graph_clone_locked(original) : NULL;
  vgx_sim_unlock();
  return !allowed ? CUDA_ERROR_NOT_SUPPORTED : *clone ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult vgx_sim_cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph) {
  if (!phGraphClone || !vgx_sim_is_graph(originalGraph))
    return CUDA_ERROR_INVALID_VALUE;
  CUgraph clone;
  CUresult result = copy(originalGraph, &clone);
  if (result == CUDA_SUCCESS)
    *phGraphClone = clone;
  return result;
}

CUresult vgx_sim_cuGraphNodeFindInClone(CUgraphNode *phNode, CUgraphNode hOriginalNode, CUgraph hClonedGraph) {
  if (!phNode || !vgx_sim_is_node(hOriginalNode) || !vgx_sim_is_graph(hClonedGraph))
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  vgx_sim_lock();
  for (uint32_t i = 0; i < hClonedGraph->count && result != CUDA_SUCCESS; i++)
    if (hClonedGraph->nodes[i]->origin == hOriginalNode->serial) {
      *phNode = hClonedGraph->nodes[i];
      result = CUDA_SUCCESS;
    }
  vgx_sim_unlock();
  return result;
}

/* The node is added first: if the child cannot be put into it, it stays as an empty node. */
CUresult vgx_sim_cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                          size_t numDependencies, CUgraph childGraph) {
  CUgraphNode made;
  if (!phGraphNode || !vgx_sim_is_graph(hGraph) || !vgx_sim_is_graph(childGraph))
    return CUDA_ERROR_INVALID_VALUE;
  CUgraph child;
  CUresult result = copy(childGraph, &child);
  if (result != CUDA_SUCCESS)
    return result;
  result = vgx_sim_graph_add(&made, hGraph, dependencies, numDependencies, VGX_SIM_NODE_GRAPH, NULL, NULL);
  if (result == CUDA_SUCCESS) {
    vgx_sim_lock();
    result = vgx_sim_graph_embed_locked(made, child);
    if (result != CUDA_SUCCESS)
      made->type = VGX_SIM_NODE_EMPTY;
    vgx_sim_unlock();
  }
  if (result == CUDA_SUCCESS)
    *phGraphNode = made;
  else
    vgx_sim_graph_destroy(child);
  return result;
}

CUresult vgx_sim_cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph *phGraph) {
  if (!phGraph || !vgx_sim_is_node(hNode) || !hNode->child)
    return CUDA_ERROR_INVALID_VALUE;
  *phGraph = hNode->child;
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuGraphAddHostNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                    size_t numDependencies, const CUDA_HOST_NODE_PARAMS *nodeParams) {
  struct vgx_sim_op *op;
  CUresult result = vgx_sim_host_create(nodeParams, &op);
  return result == CUDA_SUCCESS
             ? vgx_sim_graph_add(phGraphNode, hGraph, dependencies, numDependencies, VGX_SIM_NODE_HOST, NULL, op)
             : result;
}

CUresult vgx_sim_cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS *nodeParams) {
  if (!nodeParams || !vgx_sim_is_node(hNode) || hNode->type != VGX_SIM_NODE_HOST)
    return CUDA_ERROR_INVALID_VALUE;
  vgx_sim_lock();
  vgx_sim_host_params(hNode->work->op, nodeParams);
  vgx_sim_unlock();
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS *nodeParams) {
  struct vgx_sim_op *op;
  CUresult result = vgx_sim_host_create(nodeParams, &op);
  return result == CUDA_SUCCESS ? vgx_sim_node_change(hNode, VGX_SIM_NODE_HOST, NULL, op) : result;
}
