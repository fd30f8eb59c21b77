/* A node that gets parameters which the worker's node cannot take, because it is of another type there or holds another
 * graph. A new node of the worker gets the old one's edges and its id. Executable graphs that were made before no
 * longer find the node, as if the program had removed it. */
#include "vgs_graph_replace.h"
#include "vgs_api.h"
#include "vgs_enter.h"
#include "vgs_graph.h"
#include "vgs_graph_node.h"
#include "vgs_graph_part.h"
#include "vgs_log.h"
#include <stdlib.h>

/* The neighbours of a node in one direction, with the data of their edges. */
struct neighbours {
  CUgraphNode *nodes;
  CUgraphEdgeData *edges;
  size_t count;
};

static void neighbours_fini(struct neighbours *n) {
  free(n->nodes);
  free(n->edges);
}

/* `room`: there are at most so many. */
static CUresult neighbours_init(struct neighbours *n, CUgraphNode node, bool before, size_t room) {
  *n = (struct neighbours){calloc(room, sizeof *n->nodes), calloc(room, sizeof *n->edges), room};
  if (!n->nodes || !n->edges)
    return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = before ? vgs_cuGraphNodeGetDependencies_v2(node, n->nodes, n->edges, &n->count)
                           : vgs_cuGraphNodeGetDependentNodes_v2(node, n->nodes, n->edges, &n->count);
  if (result != CUDA_ERROR_NOT_SUPPORTED) /* a driver before 12.3, whose edges have no data */
    return result;
  n->count = room;
  return before ? vgs_cuGraphNodeGetDependencies(node, n->nodes, &n->count)
                : vgs_cuGraphNodeGetDependentNodes(node, n->nodes, &n->count);
}

/* Add the edges between `node` and the neighbours of another node. */
static CUresult join(CUgraph graph, const struct neighbours *n, CUgraphNode node, bool before) {
  if (!n->count)
    return CUDA_SUCCESS;
  VGS_FREED CUgraphNode *same = calloc(n->count, sizeof *same);
  if (!same)
    return CUDA_ERROR_OUT_OF_MEMORY;
  for (size_t i = 0; i < n->count; i++)
    same[i] = node;
  return vgs_cuGraphAddDependencies_v2(graph, before ? n->nodes : same, before ? same : n->nodes, n->edges, n->count);
}

static CUresult copy_edges(CUgraph graph, CUgraphNode from, CUgraphNode to) {
  size_t room = vgs_graph_find(graph)->count;
  CUresult result = CUDA_SUCCESS;
  for (int before = 0; before < 2 && !result; before++) {
    struct neighbours n;
    result = neighbours_init(&n, from, before, room);
    if (!result)
      result = join(graph, &n, to, before);
    neighbours_fini(&n);
  }
  return result;
}

/* Whether the driver removes nodes of this graph: not of one with nodes of memory, in itself or in a child graph. */
static CUresult check_removal(CUgraph handle) {
  struct vgs_graph *graph = vgs_graph_find(handle);
  CUresult result = graph ? vgs_graph_name_nodes(graph) : CUDA_ERROR_INVALID_VALUE;
  for (uint32_t i = 0; !result && i < graph->count; i++) {
    int type = 0;
    CUgraph inside;
    result = vgs_cuGraphNodeGetType(graph->nodes[i], &type);
    if (!result && (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE))
      result = CUDA_ERROR_NOT_SUPPORTED;
    else if (!result && type == CU_GRAPH_NODE_TYPE_GRAPH &&
             !(result = vgs_cuGraphChildGraphNodeGetGraph(graph->nodes[i], &inside)))
      result = check_removal(inside);
  }
  return result;
}

CUresult vgs_graph_may_replace(const struct vgs_graph_node *node) {
  static bool named;
  const struct vgs_graph *graph = vgs_graph_find(node->graph);
  if (!graph) /* it has been destroyed meanwhile */
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = graph->growing ? CUDA_ERROR_NOT_SUPPORTED : check_removal(node->graph);
  return result == CUDA_ERROR_NOT_SUPPORTED
             ? vgs_unimplemented("a node's change of kind in a graph that is being captured or allocates memory",
                                 &named)
             : result;
}

/* The worker's nodes keep their order, in which vgs_graph_name_nodes and updates count them, so the handles change
 * places. */
static void swap_places(struct vgs_graph *graph, CUgraphNode node, CUgraphNode fresh) {
  for (uint32_t i = 0; i < graph->count; i++)
    if (graph->nodes[i] == node)
      graph->nodes[i] = fresh;
    else if (graph->nodes[i] == fresh)
      graph->nodes[i] = node;
}

/* What the client knows of a node follows the worker's. */
static void swap_objects(struct vgs_graph_node *node, struct vgs_graph_node *fresh) {
  CUgraph inside = node->inside;
  node->inside = fresh->inside;
  fresh->inside = inside;
  node->form = fresh->form;
  CUDA_MEMCPY3D *copy = node->copy;
  node->copy = fresh->copy;
  fresh->copy = copy;
}

CUresult vgs_graph_replace(struct vgs_graph_node *node, CUgraphNode fresh) {
  struct vgs_graph_node *made = vgs_graph_node_find(fresh);
  CUresult result = copy_edges(node->graph, vgs_object_handle(node), fresh);
  if (!result)
    result = vgs_send_vgpuGraphSwapNodes(node->object.id, made->object.id);
  if (!result) {
    struct vgs_graph *graph = vgs_graph_find(node->graph);
    vgs_works_replace(&vgs_graph_outermost(graph)->works, node->object.id, made->object.id);
    swap_places(graph, vgs_object_handle(node), fresh);
    swap_objects(node, made);
  }
  CUresult removed = vgs_cuGraphDestroyNode(fresh);
  return result ? result : removed;
}
