/* Nodes that hold a host function or a graph, and clones of graphs. Locking: the runtime lock; see vgx_sim_graph.h. */
#include "vgx_sim_graph_part.h"

#include "vgx_sim_runtime.h"
#include "vgx_sim_stream.h"

#include <stdlib.h>

static CUresult copy(CUgraph original, CUgraph *clone) {
  vgx_sim_lock();
  bool allowed = !vgx_sim_graph_has_locked(original, true) && !vgx_sim_graph_has_locked(original, false);
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

/* Add a node that owns `child`. On failure the caller still does. */
static CUresult add(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, size_t count, CUgraph child) {
  CUgraphNode node;
  CUresult result = vgx_sim_graph_add(&node, graph, dependencies, count, VGX_SIM_NODE_GRAPH, NULL, NULL);
  if (result != CUDA_SUCCESS)
    return result;
  vgx_sim_lock();
  result = vgx_sim_graph_embed_locked(node, child);
  if (result != CUDA_SUCCESS)
    vgx_sim_node_remove_locked(node);
  vgx_sim_unlock();
  if (result == CUDA_SUCCESS)
    *made = node;
  else
    vgx_sim_node_destroy(node);
  return result;
}

CUresult vgx_sim_cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                          size_t numDependencies, CUgraph childGraph) {
  if (!phGraphNode || !vgx_sim_is_graph(hGraph) || !vgx_sim_is_graph(childGraph))
    return CUDA_ERROR_INVALID_VALUE;
  CUgraph child;
  vgx_sim_lock();
  bool moved = childGraph->moved;
  vgx_sim_unlock();
  CUresult result = moved ? CUDA_ERROR_INVALID_VALUE : copy(childGraph, &child);
  if (result != CUDA_SUCCESS)
    return result;
  result = add(phGraphNode, hGraph, dependencies, numDependencies, child);
  if (result != CUDA_SUCCESS)
    vgx_sim_graph_destroy(child);
  return result;
}

/* The manual: a moved graph may have nodes of memory, but no conditional ones. */
CUresult vgx_sim_graph_move(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                            CUgraph child) {
  if (!made || !vgx_sim_is_graph(graph) || !vgx_sim_is_graph(child))
    return CUDA_ERROR_INVALID_VALUE;
  vgx_sim_lock();
  bool owned = child->owner || child->capturing, conditional = vgx_sim_graph_has_locked(child, false);
  for (CUgraph at = graph; at && !owned; at = at->owner ? at->owner->graph : NULL)
    owned = at == child; /* it would lie in itself */
  vgx_sim_unlock();
  if (owned || conditional)
    return owned ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
  CUresult result = add(made, graph, dependencies, count, child);
  vgx_sim_lock();
  child->moved = result == CUDA_SUCCESS;
  vgx_sim_unlock();
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
