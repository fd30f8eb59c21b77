/* Nodes that hold a host function or a graph, and clones of graphs. */
#include "vgs_graph_part.h"
#include "vgs_api.h"
#include "vgs_callback.h"
#include "vgs_device.h"
#include "vgs_graph.h"
#include "vgs_graph_node.h"

struct vgs_graph *vgs_graph_outermost(struct vgs_graph *graph) {
  for (struct vgs_graph *owner; graph->owner && (owner = vgs_graph_find(graph->owner));)
    graph = owner;
  return graph;
}

bool vgs_graph_exec_clear_works(struct vgs_graph_exec *exec, struct vgs_works *works) {
  if (exec->launched && works->count)
    return vgs_works_clear_after(works, exec->last, exec->object.context_id);
  vgs_works_clear(works);
  return true;
}

/* --- host functions --- */

CUresult vgs_graph_work(const CUDA_HOST_NODE_PARAMS *params, struct vgs_work **work) {
  CUresult result = params && params->fn ? vgs_callback_start() : CUDA_ERROR_INVALID_VALUE;
  if (result)
    return result;
  *work = vgs_work_function(params->fn, params->userData);
  return *work ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

struct vgs_graph_node *vgs_graph_node_create_with(struct vgs_graph *graph, struct vgs_work *work) {
  struct vgs_works none = {0};
  struct vgs_graph_node *node = vgs_graph_node_create(graph);
  if (!node || vgs_works_add(&vgs_graph_outermost(graph)->works, work, node->object.id, &none))
    return node;
  vgs_object_destroy(node);
  return NULL;
}

CUresult vgs_graph_set_work(struct vgs_graph_node *node, struct vgs_work **work) {
  struct vgs_works old = {0};
  struct vgs_graph *graph = vgs_graph_find(node->graph);
  bool kept = graph && vgs_works_add(&vgs_graph_outermost(graph)->works, *work, node->object.id, &old);
  if (!kept)
    *work = NULL;        /* keep it: the worker's node refers to it */
  vgs_works_clear(&old); /* executable graphs have their own references */
  return kept ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult vgs_graph_exec_set_work(struct vgs_graph_exec *exec, const struct vgs_graph_node *node,
                                 struct vgs_work **work) {
  struct vgs_works old = {0};
  if (!vgs_works_add(&exec->works, *work, node->object.id, &old)) {
    *work = NULL;
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  vgs_graph_exec_clear_works(exec, &old);
  return CUDA_SUCCESS;
}

/* --- graphs inside nodes --- */

struct vgs_graph_node *vgs_graph_node_create_child(struct vgs_graph *graph, struct vgs_graph *child) {
  struct vgs_works none = {0};
  struct vgs_graph_node *node = vgs_graph_node_create(graph);
  if (!node || vgs_works_add_child(&vgs_graph_outermost(graph)->works, &vgs_graph_outermost(child)->works,
                                   node->object.id, &none))
    return node;
  vgs_object_destroy(node);
  return NULL;
}

void vgs_graph_remove_child(struct vgs_graph *graph, const struct vgs_graph_node *node) {
  struct vgs_works none = {0}, old = {0};
  if (vgs_works_add_child(&vgs_graph_outermost(graph)->works, &none, node->object.id, &old))
    vgs_works_clear(&old); /* a failed attempt to add a graph to itself must not change it */
}

/* The works are kept for the node, as those of a copied graph are. */
CUresult vgs_graph_move_child(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                              CUgraph moved) {
  enum { FIRST_VERSION = 12090 }; /* older drivers refuse parameters whose unused bytes are not zero */
  struct vgs_graph_adding a;
  struct vgs_graph *child = vgs_graph_find(moved), *parent = vgs_graph_find(graph);
  struct vgs_works none = {0};
  if (!child || !parent || child->owner || child->growing || vgs_graph_outermost(parent) == child ||
      vgs_driver_version_answered() < FIRST_VERSION)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = vgs_graph_adding_begin(&a, made, graph, dependencies, count);
  if (result)
    return result;
  if (!vgs_works_add_child(&vgs_graph_outermost(parent)->works, &child->works, a.node->object.id, &none))
    return vgs_graph_adding_end(&a, made, CUDA_ERROR_OUT_OF_MEMORY);
  result = vgs_send_vgpuGraphMoveChild(a.node->object.id, parent->object.id, a.dependencies, count, child->object.id);
  if (result) {
    vgs_graph_remove_child(parent, a.node);
  } else {
    a.node->inside = moved;
    child->owner = graph;
    vgs_works_clear(&child->works);
  }
  return vgs_graph_adding_end(&a, made, result);
}

struct vgs_graph *vgs_graph_create_inside(const struct vgs_graph_node *node) {
  struct vgs_graph *graph = vgs_object_create(VGW_KIND_GRAPH, 0);
  if (graph) {
    graph->unnamed = true;
    graph->owner = node->graph;
  }
  return graph;
}

CUresult vgs_graph_exec_set_child(struct vgs_graph_exec *exec, const struct vgs_graph_node *node,
                                  struct vgs_works *works) {
  struct vgs_works old = {0};
  if (!vgs_works_add_child(&exec->works, works, node->object.id, &old)) {
    *works = (struct vgs_works){0}; /* keep them: the worker's node refers to them */
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  vgs_graph_exec_clear_works(exec, &old);
  return CUDA_SUCCESS;
}

struct vgs_graph *vgs_graph_create_clone(struct vgs_graph *original) {
  struct vgs_graph *clone = vgs_object_create(VGW_KIND_GRAPH, 0);
  if (!clone)
    return NULL;
  clone->unnamed = true;
  if (vgs_works_add_all(&clone->works, &vgs_graph_outermost(original)->works))
    return clone;
  vgs_object_destroy(clone);
  return NULL;
}
