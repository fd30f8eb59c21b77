/* Conditional nodes: graphs that run once or repeatedly, depending on a value that kernels set. */
#include "vgs_graph_condition.h"
#include "vgs_api.h"
#include "vgs_graph.h"
#include "vgs_graph_node.h"
#include <stdlib.h>

enum { BODIES_MAX = 1 << 16 }; /* cap of protocol/spec */

static bool is_valid(const CUDA_CONDITIONAL_NODE_PARAMS *p) {
  switch (p->type) {
  case CU_GRAPH_COND_TYPE_IF:
    return p->size == 1 || p->size == 2; /* the second graph runs if the value is 0 */
  case CU_GRAPH_COND_TYPE_WHILE:
    return p->size == 1;
  case CU_GRAPH_COND_TYPE_SWITCH:
    return p->size && p->size <= BODIES_MAX;
  default:
    return false;
  }
}

/* Create the objects of a new node's graphs, and store their ids. */
static bool create_bodies(struct vgs_graph_node *node, uint32_t count, uint32_t *ids) {
  for (; node->body_count < count; node->body_count++) {
    struct vgs_graph *body = vgs_object_create(VGW_KIND_GRAPH, 0);
    if (!body)
      return false;
    body->owner = node->graph;
    node->bodies[node->body_count] = vgs_object_handle(body);
    ids[node->body_count] = body->object.id;
  }
  return true;
}

CUresult vgs_graph_add_conditional(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                   CUDA_CONDITIONAL_NODE_PARAMS *p) {
  uint32_t context;
  struct vgs_graph_adding a;
  if (!is_valid(p))
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = vgs_graph_context_id(p->ctx, &context);
  if (result || (result = vgs_graph_adding_begin(&a, made, graph, dependencies, count)))
    return result;
  uint32_t *ids = malloc(p->size * sizeof *ids);
  a.node->bodies = malloc(p->size * sizeof *a.node->bodies);
  if (!ids || !a.node->bodies || !create_bodies(a.node, p->size, ids))
    result = CUDA_ERROR_OUT_OF_MEMORY;
  if (!result)
    result = vgs_send_vgpuGraphAddConditional(a.graph->object.id, context, p->handle, p->type, a.node->object.id,
                                              (uint32_t)(p->size * sizeof *ids), a.dependencies, a.count, ids);
  free(ids);
  if (result)
    vgs_graph_destroy_inside(a.node);
  else
    p->phGraph_out = a.node->bodies;
  return vgs_graph_adding_end(&a, made, result);
}
