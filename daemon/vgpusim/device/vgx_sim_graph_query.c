/* Queries of graphs and their nodes, and changes of single nodes. Locking: the runtime lock. */
#include "vgx_sim_copy.h"
#include "vgx_sim_graph_node.h"
#include "vgx_sim_launch.h"
#include "vgx_sim_runtime.h"
#include "vgx_sim_set.h"

#include <string.h>

/* Appends to an array of `room` entries, and counts entries beyond it without writing them. */
struct listing {
  CUgraphNode *nodes;
  size_t room, count;
};

static void list(struct listing *l, CUgraphNode node) {
  if (l->nodes && l->count < l->room)
    l->nodes[l->count] = node;
  l->count++;
}

/* The number of entries that exist or were written; entries beyond the last are NULL, as the manual says. */
static CUresult finish(struct listing *l, size_t *count) {
  for (size_t i = l->count; l->nodes && i < l->room; i++)
    l->nodes[i] = NULL;
  *count = l->nodes && l->count > l->room ? l->room : l->count;
  return CUDA_SUCCESS;
}

/* Edges have no data in the simulator. */
static void clear(CUgraphEdgeData *data, size_t count) { memset(data, 0, count * sizeof *data); }

CUresult vgx_sim_cuGraphGetEdges(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, size_t *numEdges) {
  if (!vgx_sim_is_graph(hGraph) || !numEdges || !from != !to)
    return CUDA_ERROR_INVALID_VALUE;
  struct listing sources = {from, *numEdges, 0}, targets = {to, *numEdges, 0};
  vgx_sim_lock();
  for (uint32_t i = 0; i < hGraph->count; i++)
    for (uint32_t k = 0; k < hGraph->nodes[i]->dependency_count; k++) {
      list(&sources, hGraph->nodes[hGraph->nodes[i]->dependencies[k]]);
      list(&targets, hGraph->nodes[i]);
    }
  vgx_sim_unlock();
  finish(&sources, numEdges);
  return finish(&targets, numEdges);
}

CUresult vgx_sim_cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edgeData,
                                    size_t *numEdges) {
  if (edgeData && numEdges)
    clear(edgeData, *numEdges);
  return vgx_sim_cuGraphGetEdges(hGraph, from, to, numEdges);
}

CUresult vgx_sim_cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes) {
  if (!vgx_sim_is_graph(hGraph) || !numRootNodes)
    return CUDA_ERROR_INVALID_VALUE;
  struct listing roots = {rootNodes, *numRootNodes, 0};
  vgx_sim_lock();
  for (uint32_t i = 0; i < hGraph->count; i++)
    if (!hGraph->nodes[i]->dependency_count)
      list(&roots, hGraph->nodes[i]);
  vgx_sim_unlock();
  return finish(&roots, numRootNodes);
}

CUresult vgx_sim_cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode *dependencies, size_t *numDependencies) {
  if (!vgx_sim_is_node(hNode) || !numDependencies)
    return CUDA_ERROR_INVALID_VALUE;
  struct listing found = {dependencies, *numDependencies, 0};
  vgx_sim_lock();
  for (uint32_t k = 0; k < hNode->dependency_count; k++)
    list(&found, hNode->graph->nodes[hNode->dependencies[k]]);
  vgx_sim_unlock();
  return finish(&found, numDependencies);
}

CUresult vgx_sim_cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode *dependencies, CUgraphEdgeData *edgeData,
                                               size_t *numDependencies) {
  if (edgeData && numDependencies)
    clear(edgeData, *numDependencies);
  return vgx_sim_cuGraphNodeGetDependencies(hNode, dependencies, numDependencies);
}

static bool depends_on(CUgraphNode node, uint32_t index) {
  for (uint32_t k = 0; k < node->dependency_count; k++)
    if (node->dependencies[k] == index)
      return true;
  return false;
}

CUresult vgx_sim_cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode *dependentNodes,
                                              size_t *numDependentNodes) {
  if (!vgx_sim_is_node(hNode) || !numDependentNodes)
    return CUDA_ERROR_INVALID_VALUE;
  struct listing found = {dependentNodes, *numDependentNodes, 0};
  vgx_sim_lock();
  for (uint32_t i = 0; i < hNode->graph->count; i++)
    if (depends_on(hNode->graph->nodes[i], hNode->index))
      list(&found, hNode->graph->nodes[i]);
  vgx_sim_unlock();
  return finish(&found, numDependentNodes);
}

CUresult vgx_sim_cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode *dependentNodes,
                                                 CUgraphEdgeData *edgeData, size_t *numDependentNodes) {
  if (edgeData && numDependentNodes)
    clear(edgeData, *numDependentNodes);
  return vgx_sim_cuGraphNodeGetDependentNodes(hNode, dependentNodes, numDependentNodes);
}

/* Remove a node. The nodes behind it move up, since a node's index is its place in the graph. */
static void remove_locked(CUgraphNode gone) {
  CUgraph graph = gone->graph;
  for (uint32_t i = 0; i < graph->count; i++) {
    CUgraphNode node = graph->nodes[i];
    uint32_t kept = 0;
    for (uint32_t k = 0; k < node->dependency_count; k++)
      if (node->dependencies[k] != gone->index)
        node->dependencies[kept++] = node->dependencies[k] - (node->dependencies[k] > gone->index);
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

CUresult vgx_sim_cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                           size_t numDependencies) {
  if (!vgx_sim_is_graph(hGraph) || (numDependencies && (!from || !to)))
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  vgx_sim_lock();
  for (size_t i = 0; i < numDependencies && result == CUDA_SUCCESS; i++) {
    bool fit = vgx_sim_is_node(from[i]) && vgx_sim_is_node(to[i]) && from[i]->graph == hGraph && to[i]->graph == hGraph;
    uint32_t k = 0;
    while (fit && k < to[i]->dependency_count && to[i]->dependencies[k] != from[i]->index)
      k++;
    if (fit && k < to[i]->dependency_count)
      to[i]->dependencies[k] = to[i]->dependencies[--to[i]->dependency_count];
    else
      result = CUDA_ERROR_INVALID_VALUE;
  }
  vgx_sim_unlock();
  return result;
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
  return vgx_sim_copy_params(hNode->work->op, nodeParams);
}

CUresult vgx_sim_cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D *nodeParams) {
  CUcontext ctx;
  struct vgx_sim_op *op;
  if (!vgx_sim_node_does(hNode, VGX_SIM_NODE_MEMCPY))
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = vgx_sim_memcpy_op(nodeParams, NULL, &ctx, &op);
  return result == CUDA_SUCCESS ? vgx_sim_node_change(hNode, VGX_SIM_NODE_MEMCPY, ctx, op) : result;
}
