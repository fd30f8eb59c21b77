/* Edges of graphs. An edge's data say for which part of a kernel the next one waits: here always for all of it, which
 * satisfies each of them. Locking: the runtime lock. */
#include "vgx_sim_graph_edge.h"

#include "vgx_sim_graph.h"
#include "vgx_sim_graph_node.h"
#include "vgx_sim_runtime.h"

#include <stdlib.h>
#include <string.h>

enum { PORT_LAUNCH_ORDER = 2, TYPE_DEFAULT = 0, TYPE_PROGRAMMATIC = 1 }; /* ports 1 and 2 are a kernel's alone */

/* --- queries --- */

/* Appends to arrays of `room` entries, and counts entries beyond them without writing them. */
struct listing {
  CUgraphNode *from, *to; /* NULL: not wanted */
  CUgraphEdgeData *data;  /* NULL: an edge with data makes the query fail */
  size_t room, count;
  bool lossy;
};

static void list(struct listing *l, CUgraphNode from, CUgraphNode to, const CUgraphEdgeData *data) {
  static const CUgraphEdgeData none;
  bool fits = l->count < l->room;
  if (fits && l->from)
    l->from[l->count] = from;
  if (fits && l->to)
    l->to[l->count] = to;
  if (fits && l->data)
    l->data[l->count] = data ? *data : none;
  l->lossy |= !l->data && data && memcmp(data, &none, sizeof none) != 0;
  l->count++;
}

/* The number of entries that exist or were written; entries beyond the last are NULL, as the manual says. */
static CUresult finish(const struct listing *l, size_t *count) {
  bool wanted = l->from || l->to;
  if (l->lossy)
    return CUDA_ERROR_LOSSY_QUERY;
  for (size_t i = l->count; i < l->room; i++) {
    if (l->from)
      l->from[i] = NULL;
    if (l->to)
      l->to[i] = NULL;
    if (l->data)
      memset(&l->data[i], 0, sizeof l->data[i]);
  }
  *count = wanted && l->count > l->room ? l->room : l->count;
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edgeData,
                                    size_t *numEdges) {
  if (!vgx_sim_is_graph(hGraph) || !numEdges || !from != !to)
    return CUDA_ERROR_INVALID_VALUE;
  struct listing found = {from, to, edgeData, *numEdges, 0, false};
  vgx_sim_lock();
  for (uint32_t i = 0; i < hGraph->count; i++) {
    CUgraphNode node = hGraph->nodes[i];
    for (uint32_t k = 0; k < node->dependency_count; k++)
      list(&found, hGraph->nodes[node->dependencies[k]], node, &node->edges[k]);
  }
  vgx_sim_unlock();
  return finish(&found, numEdges);
}

CUresult vgx_sim_cuGraphGetEdges(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, size_t *numEdges) {
  return vgx_sim_cuGraphGetEdges_v2(hGraph, from, to, NULL, numEdges);
}

CUresult vgx_sim_cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes) {
  if (!vgx_sim_is_graph(hGraph) || !numRootNodes)
    return CUDA_ERROR_INVALID_VALUE;
  struct listing roots = {rootNodes, NULL, NULL, *numRootNodes, 0, false};
  vgx_sim_lock();
  for (uint32_t i = 0; i < hGraph->count; i++)
    if (!hGraph->nodes[i]->dependency_count)
      list(&roots, hGraph->nodes[i], NULL, NULL);
  vgx_sim_unlock();
  return finish(&roots, numRootNodes);
}

CUresult vgx_sim_cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode *dependencies, CUgraphEdgeData *edgeData,
                                               size_t *numDependencies) {
  if (!vgx_sim_is_node(hNode) || !numDependencies)
    return CUDA_ERROR_INVALID_VALUE;
  struct listing found = {dependencies, NULL, edgeData, *numDependencies, 0, false};
  vgx_sim_lock();
  for (uint32_t k = 0; k < hNode->dependency_count; k++)
    list(&found, hNode->graph->nodes[hNode->dependencies[k]], hNode, &hNode->edges[k]);
  vgx_sim_unlock();
  return finish(&found, numDependencies);
}

CUresult vgx_sim_cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode *dependencies, size_t *numDependencies) {
  return vgx_sim_cuGraphNodeGetDependencies_v2(hNode, dependencies, NULL, numDependencies);
}

/* The place of a node's dependency on the node with that index; dependency_count: there is none. */
static uint32_t find_edge(CUgraphNode node, uint32_t index) {
  uint32_t k = 0;
  while (k < node->dependency_count && node->dependencies[k] != index)
    k++;
  return k;
}

CUresult vgx_sim_cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode *dependentNodes,
                                                 CUgraphEdgeData *edgeData, size_t *numDependentNodes) {
  if (!vgx_sim_is_node(hNode) || !numDependentNodes)
    return CUDA_ERROR_INVALID_VALUE;
  struct listing found = {NULL, dependentNodes, edgeData, *numDependentNodes, 0, false};
  vgx_sim_lock();
  for (uint32_t i = 0; i < hNode->graph->count; i++) {
    CUgraphNode node = hNode->graph->nodes[i];
    uint32_t k = find_edge(node, hNode->index);
    if (k < node->dependency_count)
      list(&found, hNode, node, &node->edges[k]);
  }
  vgx_sim_unlock();
  return finish(&found, numDependentNodes);
}

CUresult vgx_sim_cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode *dependentNodes,
                                              size_t *numDependentNodes) {
  return vgx_sim_cuGraphNodeGetDependentNodes_v2(hNode, dependentNodes, NULL, numDependentNodes);
}

/* --- changes --- */

static bool are_of(CUgraph graph, CUgraphNode from, CUgraphNode to) {
  return vgx_sim_is_node(from) && vgx_sim_is_node(to) && from->graph == graph && to->graph == graph;
}

/* A programmatic edge leaves a kernel by one of its own ports,
 * and leads to a kernel. */
bool vgx_sim_edge_is_sound(CUgraphNode from, uint32_t to, const CUgraphEdgeData *data) {
  static const CUgraphEdgeData none;
  bool between_kernels = from->type == VGX_SIM_NODE_KERNEL && to == VGX_SIM_NODE_KERNEL;
  if (data->to_port || memcmp(data->reserved, none.reserved, sizeof none.reserved) != 0 ||
      data->from_port > PORT_LAUNCH_ORDER || (data->from_port && from->type != VGX_SIM_NODE_KERNEL))
    return false;
  return data->type == TYPE_DEFAULT || (data->type == TYPE_PROGRAMMATIC && data->from_port && between_kernels);
}

static CUresult add_edge(CUgraph graph, CUgraphNode from, CUgraphNode to, const CUgraphEdgeData *data) {
  if (!are_of(graph, from, to) || from == to || to->dependency_count >= VGX_SIM_DEPENDENCIES_MAX ||
      find_edge(to, from->index) < to->dependency_count || !vgx_sim_edge_is_sound(from, to->type, data))
    return CUDA_ERROR_INVALID_VALUE;
  size_t count = (size_t)to->dependency_count + 1;
  uint32_t *dependencies = realloc(to->dependencies, count * sizeof *dependencies);
  if (dependencies)
    to->dependencies = dependencies;
  CUgraphEdgeData *edges = dependencies ? realloc(to->edges, count * sizeof *edges) : NULL;
  if (!edges)
    return CUDA_ERROR_OUT_OF_MEMORY;
  to->edges = edges;
  edges[to->dependency_count] = *data;
  dependencies[to->dependency_count++] = from->index;
  return CUDA_SUCCESS;
}

static CUresult remove_edge(CUgraph graph, CUgraphNode from, CUgraphNode to, const CUgraphEdgeData *data) {
  uint32_t k = are_of(graph, from, to) ? find_edge(to, from->index) : 0;
  if (!are_of(graph, from, to) || k == to->dependency_count || memcmp(&to->edges[k], data, sizeof *data) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  to->dependencies[k] = to->dependencies[--to->dependency_count];
  to->edges[k] = to->edges[to->dependency_count];
  return CUDA_SUCCESS;
}

typedef CUresult change_fn(CUgraph graph, CUgraphNode from, CUgraphNode to, const CUgraphEdgeData *data);

/* `data` NULL: the edges have none. */
static CUresult change_edges(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *data,
                             size_t count, change_fn *change) {
  static const CUgraphEdgeData none;
  if (!vgx_sim_is_graph(graph) || (count && (!from || !to)))
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  vgx_sim_lock();
  for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)
    result = change(graph, from[i], to[i], data ? &data[i] : &none);
  vgx_sim_unlock();
  return result;
}

CUresult vgx_sim_cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                           const CUgraphEdgeData *edgeData, size_t numDependencies) {
  return change_edges(hGraph, from, to, edgeData, numDependencies, add_edge);
}

CUresult vgx_sim_cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                        size_t numDependencies) {
  return change_edges(hGraph, from, to, NULL, numDependencies, add_edge);
}

CUresult vgx_sim_cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                              const CUgraphEdgeData *edgeData, size_t numDependencies) {
  return change_edges(hGraph, from, to, edgeData, numDependencies, remove_edge);
}

CUresult vgx_sim_cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                           size_t numDependencies) {
  return change_edges(hGraph, from, to, NULL, numDependencies, remove_edge);
}
