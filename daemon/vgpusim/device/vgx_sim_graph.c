/* Graphs and their nodes, captured or made one by one. Locking: the runtime lock; see vgx_sim_graph.h. */
#include "vgx_sim_graph.h"

#include <stdlib.h>
#include <string.h>

#include "vgx_sim_graph_attribute.h"
#include "vgx_sim_runtime.h"
#include "vgx_sim_watch_memory.h"

#define HEIGHT_MAX 64u /* graphs within each other: destroying and planning them is recursive */

static uint64_t last_serial; /* under the runtime lock */

bool vgx_sim_is_graph(CUgraph graph) { return graph && graph->magic == VGX_SIM_GRAPH; }

bool vgx_sim_is_node(CUgraphNode node) { return node && node->magic == VGX_SIM_GRAPH_NODE; }

bool vgx_sim_node_does(CUgraphNode node, uint32_t type) {
  return vgx_sim_is_node(node) && node->type == type && node->work;
}

struct vgx_sim_work *vgx_sim_work_create(CUcontext ctx, struct vgx_sim_op *op) {
  struct vgx_sim_work *work = malloc(sizeof *work);
  if (!work) {
    op->destroy(op);
    return NULL;
  }
  *work = (struct vgx_sim_work){.refs = 1, .ctx = ctx, .op = op};
  return work;
}

void vgx_sim_work_unref(struct vgx_sim_work *work) {
  if (!work)
    return;
  vgx_sim_lock();
  bool last = --work->refs == 0;
  vgx_sim_unlock();
  if (!last)
    return;
  work->op->destroy(work->op);
  free(work);
}

CUgraph vgx_sim_graph_create(void) {
  CUgraph graph = calloc(1, sizeof *graph);
  if (graph)
    graph->magic = VGX_SIM_GRAPH;
  return graph;
}

void vgx_sim_condition_unref(struct vgx_sim_condition *condition) {
  vgx_sim_lock();
  bool last = --condition->refs == 0;
  vgx_sim_unlock();
  if (!last)
    return;
  vgx_sim_watch_freed(condition->address);
  vgx_sim_arena_free(&condition->device->arena, condition->address, NULL);
  free(condition);
}

void vgx_sim_node_destroy(CUgraphNode node) {
  vgx_sim_work_unref(node->work);
  vgx_sim_graph_destroy(node->child);
  for (uint32_t i = 0; i < node->body_count; i++)
    vgx_sim_graph_destroy(node->bodies[i]);
  free(node->bodies);
  node->magic = VGX_SIM_DEAD;
  free(node->dependencies);
  free(node->edges);
  free(node->attributes);
  free(node);
}

void vgx_sim_graph_destroy(CUgraph graph) {
  if (!graph)
    return;
  for (uint32_t i = 0; i < graph->count; i++)
    vgx_sim_node_destroy(graph->nodes[i]);
  for (struct vgx_sim_condition *c = graph->conditions, *next; c; c = next) {
    next = c->next;
    vgx_sim_condition_unref(c);
  }
  graph->magic = VGX_SIM_DEAD;
  free(graph->nodes);
  free(graph);
}

CUresult vgx_sim_graph_add_locked(CUgraph graph, uint32_t type, struct vgx_sim_work *work, const uint32_t *dependencies,
                                  uint32_t dependency_count, CUgraphNode *made) {
  if (graph->count >= VGX_SIM_GRAPH_NODES_MAX)
    return CUDA_ERROR_OUT_OF_MEMORY;
  if (graph->count == graph->capacity) {
    uint32_t capacity = graph->capacity ? 2 * graph->capacity : 16;
    CUgraphNode *nodes = realloc(graph->nodes, capacity * sizeof(CUgraphNode));
    if (!nodes)
      return CUDA_ERROR_OUT_OF_MEMORY;
    graph->nodes = nodes;
    graph->capacity = capacity;
  }
  CUgraphNode node = calloc(1, sizeof *node);
  uint32_t *copy = malloc(((size_t)dependency_count + 1) * sizeof *copy);
  CUgraphEdgeData *edges = calloc((size_t)dependency_count + 1, sizeof *edges);
  if (!node || !copy || !edges) {
    free(node);
    free(copy);
    free(edges);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (dependency_count)
    memcpy(copy, dependencies, dependency_count * sizeof *copy);
  *node = (struct CUgraphNode_st){.magic = VGX_SIM_GRAPH_NODE,
                                  .graph = graph,
                                  .serial = ++last_serial,
                                  .index = graph->count,
                                  .type = type,
                                  .work = work,
                                  .dependencies = copy,
                                  .edges = edges,
                                  .dependency_count = dependency_count};
  graph->nodes[graph->count++] = node;
  vgx_sim_graph_grow_locked(graph, 1);
  *made = node;
  return CUDA_SUCCESS;
}

void vgx_sim_node_remove_locked(CUgraphNode gone) {
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

CUgraph vgx_sim_graph_clone_locked(CUgraph original) {
  CUgraph clone = vgx_sim_graph_create();
  for (uint32_t i = 0; clone && i < original->count; i++) {
    CUgraphNode from = original->nodes[i], node;
    bool has_child = from->child != NULL;
    CUgraph child = has_child ? vgx_sim_graph_clone_locked(from->child) : NULL;
    if ((has_child && !child) || /* the lock was dropped: `original` may be gone */
        vgx_sim_graph_add_locked(clone, from->type, from->work, from->dependencies, from->dependency_count, &node)) {
      vgx_sim_unlock(); /* `original` may be destroyed meanwhile: nothing more is read from it */
      vgx_sim_graph_destroy(child);
      vgx_sim_graph_destroy(clone);
      vgx_sim_lock();
      return NULL;
    }
    memcpy(node->edges, from->edges, from->dependency_count * sizeof *node->edges);
    node->origin = from->serial;
    node->child = child;
    vgx_sim_attributes_copy(node, from); /* out of memory: the copy has the initial ones, which are hints */
    if (child) {
      child->owner = node;
      clone->steps += child->steps;
    }
    if (from->work)
      from->work->refs++;
  }
  if (clone)
    clone->height = original->height;
  return clone;
}

uint64_t vgx_sim_graph_count(CUgraph graph) { return graph->steps; }

void vgx_sim_graph_grow_locked(CUgraph graph, int64_t steps) {
  for (; graph; graph = graph->owner ? graph->owner->graph : NULL)
    graph->steps += (uint64_t)steps;
}

bool vgx_sim_graph_has_locked(CUgraph graph, bool memory) {
  for (uint32_t i = 0; i < graph->count; i++) {
    const struct CUgraphNode_st *node = graph->nodes[i];
    bool is_memory = node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || node->type == CU_GRAPH_NODE_TYPE_MEM_FREE;
    if ((memory ? is_memory : node->body_count > 0) || (node->child && vgx_sim_graph_has_locked(node->child, memory)))
      return true;
  }
  return false;
}

/* The nesting depth of a graph. */
static uint32_t depth_of(CUgraph graph) {
  uint32_t depth = 0;
  for (; graph->owner; graph = graph->owner->graph)
    depth++;
  return depth;
}

CUresult vgx_sim_graph_put_bodies(CUgraphNode node, uint32_t count) {
  vgx_sim_lock();
  bool fits = depth_of(node->graph) < HEIGHT_MAX;
  vgx_sim_unlock();
  CUgraph *bodies = fits ? calloc(count, sizeof(CUgraph)) : NULL;
  uint32_t made = 0;
  while (bodies && made < count && (bodies[made] = vgx_sim_graph_create()))
    bodies[made++]->owner = node;
  if (made < count) {
    while (made > 0)
      vgx_sim_graph_destroy(bodies[--made]);
    free(bodies);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  vgx_sim_lock();
  node->bodies = bodies;
  node->body_count = count;
  vgx_sim_graph_grow_locked(node->graph, count); /* one step for each body; its own steps count as they are added */
  for (CUgraph at = node->graph; at; at = at->owner ? at->owner->graph : NULL) /* as for a graph without children */
    at->height = at->height ? at->height : 1;
  vgx_sim_unlock();
  return CUDA_SUCCESS;
}

CUresult vgx_sim_graph_embed_locked(CUgraphNode node, CUgraph child) {
  uint32_t height = child->height + 1;
  CUgraph outermost = node->graph;
  for (; outermost->owner; outermost = outermost->owner->graph)
    height++;
  if (height > HEIGHT_MAX || vgx_sim_graph_count(outermost) + vgx_sim_graph_count(child) > VGX_SIM_GRAPH_NODES_MAX)
    return CUDA_ERROR_OUT_OF_MEMORY;
  height = child->height + 1;
  for (CUgraph at = node->graph; at; at = at->owner ? at->owner->graph : NULL, height++)
    at->height = height > at->height ? height : at->height;
  vgx_sim_graph_grow_locked(node->graph, (int64_t)child->steps);
  node->child = child;
  child->owner = node;
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuGraphCreate(CUgraph *phGraph, unsigned int flags) {
  if (!phGraph || flags)
    return CUDA_ERROR_INVALID_VALUE;
  CUgraph graph = vgx_sim_graph_create();
  if (!graph)
    return CUDA_ERROR_OUT_OF_MEMORY;
  *phGraph = graph;
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuGraphDestroy(CUgraph hGraph) {
  if (!vgx_sim_is_graph(hGraph))
    return CUDA_ERROR_INVALID_VALUE;
  vgx_sim_lock();
  bool used = hGraph->owner || hGraph->capturing;
  vgx_sim_unlock();
  if (used)
    return CUDA_ERROR_INVALID_VALUE;
  vgx_sim_graph_destroy(hGraph);
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes) {
  if (!vgx_sim_is_graph(hGraph) || !numNodes)
    return CUDA_ERROR_INVALID_VALUE;
  vgx_sim_lock();
  for (size_t i = 0; nodes && i < *numNodes; i++) /* beyond the last: NULL, says the manual */
    nodes[i] = i < hGraph->count ? hGraph->nodes[i] : NULL;
  if (!nodes || *numNodes > hGraph->count)
    *numNodes = hGraph->count;
  vgx_sim_unlock();
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuGraphNodeGetType(CUgraphNode hNode, int *type) {
  if (!vgx_sim_is_node(hNode) || !type)
    return CUDA_ERROR_INVALID_VALUE;
  *type = (int)hNode->type;
  return CUDA_SUCCESS;
}

CUresult vgx_sim_node_number(CUgraphNode node, uint64_t *number) {
  if (!vgx_sim_is_node(node))
    return CUDA_ERROR_INVALID_VALUE;
  *number = node->serial;
  return CUDA_SUCCESS;
}

CUresult vgx_sim_graph_add(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                           uint32_t type, CUcontext ctx, struct vgx_sim_op *op) {
  struct vgx_sim_work *work = NULL;
  if (op && !(work = vgx_sim_work_create(ctx, op)))
    return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = made && vgx_sim_is_graph(graph) && count <= VGX_SIM_DEPENDENCIES_MAX && (dependencies || count == 0)
                        ? CUDA_SUCCESS
                        : CUDA_ERROR_INVALID_VALUE;
  uint32_t *indices = result == CUDA_SUCCESS ? malloc((count + 1) * sizeof *indices) : NULL;
  if (result == CUDA_SUCCESS && !indices)
    result = CUDA_ERROR_OUT_OF_MEMORY;
  vgx_sim_lock();
  for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++) {
    if (!vgx_sim_is_node(dependencies[i]) || dependencies[i]->graph != graph)
      result = CUDA_ERROR_INVALID_VALUE;
    else
      indices[i] = dependencies[i]->index;
  }
  if (result == CUDA_SUCCESS)
    result = vgx_sim_graph_add_locked(graph, type, work, indices, (uint32_t)count, made);
  vgx_sim_unlock();
  free(indices);
  if (result != CUDA_SUCCESS)
    vgx_sim_work_unref(work);
  return result;
}

CUresult vgx_sim_node_change(CUgraphNode node, uint32_t type, CUcontext ctx, struct vgx_sim_op *op) {
  struct vgx_sim_work *work = vgx_sim_work_create(ctx, op);
  if (!work)
    return CUDA_ERROR_OUT_OF_MEMORY;
  vgx_sim_lock();
  bool fits = vgx_sim_is_node(node) && node->type == type;
  struct vgx_sim_work *old = fits ? node->work : work;
  if (fits)
    node->work = work;
  vgx_sim_unlock();
  vgx_sim_work_unref(old);
  return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
