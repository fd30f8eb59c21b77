/* Conditional nodes. The driver trusts a condition's number, so it only gets those that it made for the graph. */
#include "vgx_graph_condition.h"

#include <stdlib.h>
#include <string.h>

#include "vgx_custom.h"
#include "vgx_handle.h"

enum { CONDITIONS_MAX = 1 << 20 };

/* Remove the conditions of graphs that have been destroyed. */
static void purge_locked(struct vgx_session *s) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < s->condition_count; i++)
    if (vgx_handle_live_locked(s, VGW_KIND_GRAPH, s->conditions[i].graph))
      s->conditions[kept++] = s->conditions[i];
  s->condition_count = kept;
}

CUresult vgx_condition_add(struct vgx_session *s, uint32_t graph, uint64_t value) {
  pthread_mutex_lock(&s->table_lock);
  if (s->condition_count == s->condition_capacity)
    purge_locked(s);
  if (s->condition_count == s->condition_capacity && s->condition_count < CONDITIONS_MAX) {
    uint32_t capacity = s->condition_capacity ? 2 * s->condition_capacity : 16;
    struct vgx_condition *grown = realloc(s->conditions, capacity * sizeof *grown);
    if (grown) {
      s->conditions = grown;
      s->condition_capacity = capacity;
    }
  }
  bool room = s->condition_count < s->condition_capacity;
  if (room)
    s->conditions[s->condition_count++] = (struct vgx_condition){value, graph};
  pthread_mutex_unlock(&s->table_lock);
  return room ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

bool vgx_condition_is_of(struct vgx_session *s, uint32_t graph, uint64_t value) {
  bool known = false;
  pthread_mutex_lock(&s->table_lock);
  for (uint32_t i = 0; i < s->condition_count && !known; i++)
    known = s->conditions[i].value == value && s->conditions[i].graph == graph;
  pthread_mutex_unlock(&s->table_lock);
  return known;
}

static uint32_t id_at(const void *ids, uint32_t index) {
  uint32_t id;
  memcpy(&id, (const char *)ids + index * sizeof id, sizeof id);
  return id;
}

/* Set the ids of a node and of its graphs, of which `count` are reserved; `node` NULL: creating it failed. */
static void set_ids(struct vgx_session *s, const struct vgw_req_vgpuGraphAddConditional *req, const void *bodies,
                    uint32_t count, CUgraphNode node, const CUgraph *graphs) {
  vgx_handle_set(s, VGW_KIND_GRAPH_NODE, req->node, node, VGW_KIND_GRAPH, req->hGraph);
  for (uint32_t i = 0; i < count; i++)
    vgx_handle_set(s, VGW_KIND_GRAPH, id_at(bodies, i), node ? graphs[i] : NULL, VGW_KIND_GRAPH_NODE, req->node);
}

CUresult vgx_vgpuGraphAddConditional(struct vgx_session *s, const struct vgw_req_vgpuGraphAddConditional *req,
                                     CUgraph graph, CUcontext context, const CUgraphNode *dependencies,
                                     const void *bodies) {
  CUgraphNode made = NULL;
  uint32_t count = req->bodies_nbytes / sizeof(uint32_t);
  CUgraphNodeParams params = {
      .type = CU_GRAPH_NODE_TYPE_CONDITIONAL,
      .conditional = {.handle = req->condition, .type = req->type, .size = count, .ctx = context},
  };
  if (req->bodies_nbytes % sizeof(uint32_t))
    return vgx_violation(s, "ids of a conditional node's graphs");
  if (!s->backend->cuGraphAddNode_v2)
    return vgx_not_offered(s, "cuGraphAddNode");
  enum vgx_reserved node = vgx_handle_reserve(s, VGW_KIND_GRAPH_NODE, req->node);
  if (node == VGX_TAKEN)
    return vgx_violation(s, "node of a conditional node taken");
  CUresult result = node == VGX_RESERVED ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  uint32_t reserved = 0;
  while (reserved < count && result == CUDA_SUCCESS) {
    enum vgx_reserved how = vgx_handle_reserve(s, VGW_KIND_GRAPH, id_at(bodies, reserved));
    if (how == VGX_RESERVED)
      reserved++;
    else
      result = how == VGX_TAKEN ? vgx_violation(s, "graph of a conditional node taken") : CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result == CUDA_SUCCESS)
    result = s->backend->cuGraphAddNode_v2(&made, graph, dependencies, NULL, req->numDependencies, &params);
  set_ids(s, req, bodies, reserved, result == CUDA_SUCCESS ? made : NULL, params.conditional.phGraph_out);
  return result;
}

size_t vgx_node_access(const CUDA_MEM_ALLOC_NODE_PARAMS *params, CUmemAccessDesc *descs, uint64_t capacity) {
  size_t count = params->accessDescs ? params->accessDescCount : 0;
  for (size_t i = 0; i < count && i < capacity; i++)
    descs[i] = params->accessDescs[i];
  return count;
}

uint32_t vgx_node_words(struct vgx_session *s, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params,
                        CUstreamBatchMemOpParams *words, uint64_t capacity, uint32_t *context) {
  void *of = params->ctx;
  if (vgx_handle_ids(s, VGW_KIND_CONTEXT, 0, &of, 1, context) != CUDA_SUCCESS)
    *context = vgx_context_id();
  for (uint32_t i = 0; i < params->count && i < capacity; i++)
    words[i] = params->paramArray[i];
  return params->count;
}

static CUresult name_array(struct vgx_session *s, CUmemorytype type, CUarray *array) {
  uint32_t id = 0;
  if (type != CU_MEMORYTYPE_ARRAY)
    return CUDA_SUCCESS;
  CUresult result = vgx_handle_ids(s, VGW_KIND_ARRAY, 0, (void *const *)array, 1, &id);
  *array = (CUarray)(uintptr_t)id;
  return result;
}

CUresult vgx_copy_name_arrays(struct vgx_session *s, CUDA_MEMCPY3D *copy) {
  CUresult result = name_array(s, copy->srcMemoryType, &copy->srcArray);
  return result == CUDA_SUCCESS ? name_array(s, copy->dstMemoryType, &copy->dstArray) : result;
}
