/* Conditional nodes: graphs that run if, or while, a value that kernels set is nonzero, or that the value selects.
 *
 * The number that a client gets for a value is the address of a word on the device, so a kernel sets the value by a
 * store: the compiler turns a call of cudaGraphSetConditional into one. Locking: the runtime lock guards a graph's
 * conditions; words are read when nothing of the graph runs. */
#include "vgx_sim_graph_condition.h"

#include <stdlib.h>

#include "vgx_sim_graph.h"
#include "vgx_sim_graph_part.h"
#include "vgx_sim_runtime.h"
#include "vgx_sim_watch_memory.h"

enum { ASSIGN_DEFAULT = 1, BODIES_MAX = 1 << 16 };

struct conditional {
  struct vgx_sim_op op;
  struct vgx_sim_condition *condition;
  int32_t type;
  uint32_t size;
};

static uint32_t *word_of(const struct vgx_sim_condition *c) { return (uint32_t *)c->address; }

void vgx_sim_condition_begin(const struct vgx_sim_op *op) {
  const struct vgx_sim_condition *c = ((const struct conditional *)op)->condition;
  if (c->assigned)
    __atomic_store_n(word_of(c), c->initial, __ATOMIC_RELEASE);
}

uint32_t vgx_sim_condition_body(const struct vgx_sim_op *op) {
  const struct conditional *n = (const struct conditional *)op;
  uint32_t value = __atomic_load_n(word_of(n->condition), __ATOMIC_ACQUIRE);
  if (n->type != CU_GRAPH_COND_TYPE_SWITCH)
    value = value ? 0 : 1; /* the second graph of an `if` runs where the value is 0 */
  return value < n->size ? value : UINT32_MAX;
}

bool vgx_sim_condition_repeats(const struct vgx_sim_op *op) {
  return ((const struct conditional *)op)->type == CU_GRAPH_COND_TYPE_WHILE;
}

bool vgx_sim_condition_is_like(const struct vgx_sim_op *op, const struct vgx_sim_op *other) {
  const struct conditional *a = (const struct conditional *)op, *b = (const struct conditional *)other;
  return a->type == b->type && a->size == b->size;
}

static void destroy(struct vgx_sim_op *op) {
  vgx_sim_condition_unref(((struct conditional *)op)->condition);
  free(op);
}

static CUresult nothing(struct vgx_sim_op *op) {
  (void)op;
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuGraphConditionalHandleCreate(uint64_t *pHandle_out, CUgraph hGraph, CUcontext ctx,
                                                unsigned int defaultLaunchValue, unsigned int flags) {
  CUresult result = ctx ? vgx_sim_check(ctx) : vgx_sim_enter(&ctx);
  if (result != CUDA_SUCCESS)
    return result;
  if (!pHandle_out || !vgx_sim_is_graph(hGraph) || flags & ~(unsigned)ASSIGN_DEFAULT)
    return CUDA_ERROR_INVALID_VALUE;
  struct vgx_sim_condition *made = calloc(1, sizeof *made);
  if (!made)
    return CUDA_ERROR_OUT_OF_MEMORY;
  *made = (struct vgx_sim_condition){
      .refs = 1, .device = ctx->device, .initial = defaultLaunchValue, .assigned = flags & ASSIGN_DEFAULT};
  result = vgx_sim_arena_allocate(&ctx->device->arena, sizeof(uint32_t), NULL, NULL, &made->address);
  if (result != CUDA_SUCCESS) {
    free(made);
    return result;
  }
  __atomic_store_n(word_of(made), defaultLaunchValue, __ATOMIC_RELEASE);
  vgx_sim_watch_allocated(made->address, sizeof(uint32_t));
  vgx_sim_lock();
  made->next = hGraph->conditions;
  hGraph->conditions = made;
  vgx_sim_unlock();
  *pHandle_out = made->address;
  return CUDA_SUCCESS;
}

static bool is_valid(const CUDA_CONDITIONAL_NODE_PARAMS *p) {
  switch (p->type) {
  case CU_GRAPH_COND_TYPE_IF:
    return p->size == 1 || p->size == 2;
  case CU_GRAPH_COND_TYPE_WHILE:
    return p->size == 1;
  case CU_GRAPH_COND_TYPE_SWITCH:
    return p->size && p->size <= BODIES_MAX;
  default:
    return false;
  }
}

/* The graph's condition with this number, referenced for the caller; NULL: none. */
static struct vgx_sim_condition *find(CUgraph graph, CUgraphConditionalHandle handle) {
  vgx_sim_lock();
  struct vgx_sim_condition *c = graph->conditions;
  while (c && c->address != handle)
    c = c->next;
  if (c)
    c->refs++;
  vgx_sim_unlock();
  return c;
}

/* Only conditional nodes and moved graphs are added by this function; the client adds other nodes by functions of their
 * own. If a conditional node's graphs cannot be created, it stays as an empty node. */
CUresult vgx_sim_cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                   const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                   CUgraphNodeParams *nodeParams) {
  if (nodeParams && nodeParams->type == CU_GRAPH_NODE_TYPE_GRAPH && nodeParams->graph.ownership && !dependencyData)
    return vgx_sim_graph_move(phGraphNode, hGraph, dependencies, numDependencies, nodeParams->graph.graph);
  if (!nodeParams || nodeParams->type != CU_GRAPH_NODE_TYPE_CONDITIONAL || dependencyData)
    return CUDA_ERROR_NOT_SUPPORTED;
  CUDA_CONDITIONAL_NODE_PARAMS *p = &nodeParams->conditional;
  if (!phGraphNode || !vgx_sim_is_graph(hGraph) || !is_valid(p))
    return CUDA_ERROR_INVALID_VALUE;
  struct vgx_sim_condition *condition = find(hGraph, p->handle);
  if (!condition)
    return CUDA_ERROR_INVALID_VALUE;
  struct conditional *op = calloc(1, sizeof *op);
  if (!op) {
    vgx_sim_condition_unref(condition);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *op = (struct conditional){
      .op = {.run = nothing, .destroy = destroy}, .condition = condition, .type = p->type, .size = p->size};
  CUgraphNode made;
  CUresult result =
      vgx_sim_graph_add(&made, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_CONDITIONAL, p->ctx, &op->op);
  if (result != CUDA_SUCCESS)
    return result;
  result = vgx_sim_graph_put_bodies(made, p->size);
  if (result != CUDA_SUCCESS) {
    vgx_sim_lock();
    made->type = VGX_SIM_NODE_EMPTY;
    vgx_sim_unlock();
    return result;
  }
  p->phGraph_out = made->bodies;
  *phGraphNode = made;
  return CUDA_SUCCESS;
}
