/* Nodes: added one by one, or given handles when the program asks for those of a captured graph. They live as long as
 * the graph. Kernels: vgs_graph_kernel.c. Copies: vgs_graph_copy.c. Host functions, child graphs: vgs_graph_part.c. */
#include "vgs_graph_node.h"
#include "vgs_api.h"
#include "vgs_enter.h"
#include "vgs_graph.h"
#include "vgs_kernel.h"
#include "vgs_launch.h"
#include "vgs_log.h"
#include <stdlib.h>
#include <string.h>

enum { NODES_MAX = VGW_PIECE_NBYTES / sizeof(uint32_t) }; /* nodes that one record can name */

/* Make room for `more` handles. */
static bool make_room(struct vgs_graph *graph, uint32_t more) {
  if (graph->count + more <= graph->capacity)
    return true;
  uint32_t capacity = 2 * graph->capacity + more;
  CUgraphNode *grown = realloc(graph->nodes, capacity * sizeof(CUgraphNode));
  if (!grown)
    return false;
  graph->nodes = grown;
  graph->capacity = capacity;
  return true;
}

struct vgs_graph_node *vgs_graph_node_create(struct vgs_graph *graph) {
  struct vgs_graph_node *node = make_room(graph, 1) ? vgs_object_create(VGW_KIND_GRAPH_NODE, 0) : NULL;
  if (node)
    node->graph = vgs_object_handle(graph);
  return node;
}

void vgs_graph_node_add(struct vgs_graph *graph, struct vgs_graph_node *node) {
  graph->nodes[graph->count++] = vgs_object_handle(node);
}

CUresult vgs_graph_context_id(CUcontext ctx, uint32_t *id) {
  struct vgs_context *context = ctx ? vgs_context_find(ctx) : vgs_context_entered;
  if (!context)
    return CUDA_ERROR_INVALID_CONTEXT;
  *id = context->wire_id;
  return CUDA_SUCCESS;
}

CUresult vgs_graph_adding_begin(struct vgs_graph_adding *a, CUgraphNode *made, CUgraph graph,
                                const CUgraphNode *dependencies, size_t count) {
  a->graph = vgs_graph_find(graph);
  if (!made || !a->graph || count > NODES_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = vgs_graph_name_nodes(a->graph);
  if (!result)
    result = vgs_handle_ids(VGW_KIND_GRAPH_NODE, (const void *const *)dependencies, count, CUDA_ERROR_INVALID_VALUE,
                            &a->dependencies);
  if (result)
    return result;
  a->count = count;
  a->node = vgs_graph_node_create(a->graph);
  if (a->node)
    return CUDA_SUCCESS;
  free(a->dependencies);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult vgs_graph_adding_end(struct vgs_graph_adding *a, CUgraphNode *made, CUresult result) {
  free(a->dependencies);
  if (result) {
    vgs_object_destroy(a->node);
    return result;
  }
  vgs_graph_node_add(a->graph, a->node);
  *made = vgs_object_handle(a->node);
  return CUDA_SUCCESS;
}

bool vgs_edges_have_data(const CUgraphEdgeData *data, size_t count) {
  static const CUgraphEdgeData plain;
  for (size_t i = 0; data && i < count; i++)
    if (memcmp(&data[i], &plain, sizeof plain))
      return true;
  return false;
}

/* Nodes that have handles come first in the driver's order, too, because new nodes are appended. */
CUresult vgs_graph_name_nodes(struct vgs_graph *graph) {
  size_t count, total;
  if (!graph->unnamed)
    return CUDA_SUCCESS;
  CUresult result = vgs_send_cuGraphGetNodes(graph->object.id, &count, 0, "");
  if (result)
    return result;
  if (count < graph->count || count > NODES_MAX)
    return CUDA_ERROR_UNKNOWN;
  bool room = make_room(graph, (uint32_t)count - graph->count);
  uint32_t *ids = room ? malloc((count + 1) * sizeof *ids) : NULL;
  result = ids ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  uint32_t made = graph->count;
  for (uint32_t i = 0; !result && i < graph->count; i++)
    ids[i] = (uint32_t)(uintptr_t)graph->nodes[i]; /* a handle's low half is its id */
  for (; !result && made < count; made++) {
    struct vgs_graph_node *node = vgs_object_create(VGW_KIND_GRAPH_NODE, 0);
    if (!node) {
      result = CUDA_ERROR_OUT_OF_MEMORY;
      break;
    }
    node->graph = vgs_object_handle(graph);
    ids[made] = node->object.id;
    graph->nodes[made] = vgs_object_handle(node);
  }
  if (!result && count > graph->count)
    result = vgs_send_cuGraphGetNodes(graph->object.id, &total, (uint32_t)(count * sizeof *ids), ids);
  free(ids);
  if (result) {
    while (made-- > graph->count)
      vgs_object_destroy(vgs_graph_node_find(graph->nodes[made]));
    return result;
  }
  graph->count = (uint32_t)count;
  graph->unnamed = graph->growing;
  return CUDA_SUCCESS;
}

CUresult vgs_cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes) {
  struct vgs_graph *graph = vgs_graph_find(hGraph);
  if (!graph || !numNodes)
    return CUDA_ERROR_INVALID_VALUE;
  size_t count = graph->count;
  if (graph->unnamed) {
    CUresult result = nodes ? vgs_graph_name_nodes(graph) : vgs_send_cuGraphGetNodes(graph->object.id, &count, 0, "");
    if (result)
      return result;
    if (nodes)
      count = graph->count;
  }
  if (nodes) {
    size_t room = *numNodes;
    for (size_t i = 0; i < room; i++) /* the manual: NULL beyond the last */
      nodes[i] = i < count ? graph->nodes[i] : NULL;
    count = room < count ? room : count;
  }
  *numNodes = count;
  return CUDA_SUCCESS;
}
