/* What belongs to a graph: its nodes, the graphs inside its nodes, its host functions. */
#include <stdlib.h>

#include "vgx_custom.h"
#include "vgx_launch.h"
#include "vgx_session.h"

enum { NODE_MEMCPY = 1, NODE_HOST = 3, NODE_GRAPH = 4 }; /* CUgraphNodeType */

/* A node's function, if it is one of ours. */
static bool callback_of(struct vgx_session *s, CUgraphNode node, uint32_t *callback) {
  int type;
  CUDA_HOST_NODE_PARAMS params, ours;
  vgx_callback_of(s, 0, &ours);
  if (!s->backend->cuGraphNodeGetType || !s->backend->cuGraphHostNodeGetParams ||
      s->backend->cuGraphNodeGetType(node, &type) != CUDA_SUCCESS || type != NODE_HOST ||
      s->backend->cuGraphHostNodeGetParams(node, &params) != CUDA_SUCCESS || params.fn != ours.fn)
    return false;
  *callback = (uint32_t)(uintptr_t)params.userData;
  return true;
}

/* The nodes that the program knows of, malloc'ed; `split`: there are internal ones besides. */
static CUresult visible_nodes(struct vgx_session *s, CUgraph graph, CUgraphNode **nodes, size_t *count, bool *split) {
  size_t all = 0;
  CUresult result = s->backend->cuGraphGetNodes(graph, NULL, &all);
  if (result != CUDA_SUCCESS)
    return result;
  CUgraphNode *found = calloc(all + 1, sizeof *found);
  if (!found)
    return CUDA_ERROR_OUT_OF_MEMORY;
  if (all) /* NVIDIA's driver takes no array for no nodes */
    result = s->backend->cuGraphGetNodes(graph, found, &all);
  if (result != CUDA_SUCCESS) {
    free(found);
    return result;
  }
  *count = 0;
  for (size_t i = 0; i < all; i++) {
    uint32_t callback;
    if (!callback_of(s, found[i], &callback) || !(callback & VGW_CALLBACK_INTERNAL))
      found[(*count)++] = found[i];
  }
  *split = *count < all;
  *nodes = found;
  return CUDA_SUCCESS;
}

/* Whether a node is a copy that the client made of two halves: a child graph that holds them and nothing else. */
static bool is_whole_copy(struct vgx_session *s, CUgraphNode node, int type) {
  enum { HALVES = 2 };
  CUgraph inside;
  CUgraphNode halves[HALVES];
  size_t count = 0;
  uint32_t callback;
  if (type != NODE_GRAPH || !s->backend->cuGraphChildGraphNodeGetGraph || !s->backend->cuGraphGetNodes ||
      s->backend->cuGraphChildGraphNodeGetGraph(node, &inside) != CUDA_SUCCESS ||
      s->backend->cuGraphGetNodes(inside, NULL, &count) != CUDA_SUCCESS || count > HALVES ||
      s->backend->cuGraphGetNodes(inside, halves, &count) != CUDA_SUCCESS)
    return false;
  bool found = false;
  for (size_t i = 0; i < count && !found; i++)
    found = callback_of(s, halves[i], &callback) && callback & VGW_CALLBACK_WHOLE_COPY;
  return found;
}

CUresult vgx_cuGraphNodeGetType(struct vgx_session *s, const struct vgw_req_cuGraphNodeGetType *req, CUgraphNode node,
                                struct vgw_rep_cuGraphNodeGetType *rep) {
  int type;
  (void)req;
  CUresult result = s->backend->cuGraphNodeGetType(node, &type);
  if (result == CUDA_SUCCESS)
    rep->type = is_whole_copy(s, node, type) ? NODE_MEMCPY : type;
  return result;
}

/* Give a node the client's id. */
static CUresult name_node(struct vgx_session *s, uint32_t graph, uint32_t id, CUgraphNode node, bool split) {
  int type;
  pthread_mutex_lock(&s->table_lock);
  bool known = vgx_handle_live_locked(s, VGW_KIND_GRAPH_NODE, id) == node; /* named while its capture went on */
  pthread_mutex_unlock(&s->table_lock);
  if (known)
    return CUDA_SUCCESS;
  split = split && (s->backend->cuGraphNodeGetType(node, &type) != CUDA_SUCCESS || type == NODE_MEMCPY);
  if (!vgx_handle_reserve(s, VGW_KIND_GRAPH_NODE, id))
    return vgx_violation(s, "node taken");
  if (split)
    vgx_handle_set_split(s, VGW_KIND_GRAPH_NODE, id);
  vgx_handle_set(s, VGW_KIND_GRAPH_NODE, id, node, VGW_KIND_GRAPH, graph);
  return CUDA_SUCCESS;
}

CUresult vgx_cuGraphGetNodes(struct vgx_session *s, const struct vgw_req_cuGraphGetNodes *req, CUgraph graph,
                             const void *ids, struct vgw_rep_cuGraphGetNodes *rep) {
  CUgraphNode *nodes;
  size_t count = 0, named = req->ids_nbytes / sizeof(uint32_t);
  bool split;
  if (req->ids_nbytes % sizeof(uint32_t))
    return vgx_violation(s, "ids of graph nodes");
  CUresult result = visible_nodes(s, graph, &nodes, &count, &split);
  if (result != CUDA_SUCCESS)
    return result;
  rep->count = count;
  if (named && named != count)
    result = CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < named && result == CUDA_SUCCESS; i++) {
    uint32_t id;
    memcpy(&id, (const char *)ids + i * sizeof id, sizeof id);
    result = name_node(s, req->hGraph, id, nodes[i], split);
  }
  free(nodes);
  return result;
}

/* --- host functions --- */

/* A graph's callbacks come due any number of times, and the client knows them by their ids. */
static CUresult check_callback(struct vgx_session *s, uint32_t id, CUDA_HOST_NODE_PARAMS *params) {
  if (!(id & VGW_CALLBACK_OF_GRAPH))
    return vgx_violation(s, "a graph's callback without its mark");
  vgx_callback_of(s, id, params);
  return CUDA_SUCCESS;
}

CUresult vgx_cuGraphAddHostNode(struct vgx_session *s, const struct vgw_req_cuGraphAddHostNode *req, CUgraph graph,
                                CUgraphNode *node, const CUgraphNode *dependencies) {
  CUDA_HOST_NODE_PARAMS params;
  CUresult result = check_callback(s, req->callback, &params);
  if (result != CUDA_SUCCESS)
    return result;
  return s->backend->cuGraphAddHostNode(node, graph, dependencies, req->numDependencies, &params);
}

CUresult vgx_cuGraphHostNodeGetParams(struct vgx_session *s, const struct vgw_req_cuGraphHostNodeGetParams *req,
                                      CUgraphNode node, struct vgw_rep_cuGraphHostNodeGetParams *rep) {
  (void)req;
  return callback_of(s, node, &rep->callback) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult vgx_cuGraphHostNodeSetParams(struct vgx_session *s, const struct vgw_req_cuGraphHostNodeSetParams *req,
                                      CUgraphNode node) {
  CUDA_HOST_NODE_PARAMS params;
  CUresult result = check_callback(s, req->callback, &params);
  return result == CUDA_SUCCESS ? s->backend->cuGraphHostNodeSetParams(node, &params) : result;
}

CUresult vgx_cuGraphExecHostNodeSetParams(struct vgx_session *s, const struct vgw_req_cuGraphExecHostNodeSetParams *req,
                                          CUgraphExec exec, CUgraphNode node) {
  CUDA_HOST_NODE_PARAMS params;
  CUresult result = check_callback(s, req->callback, &params);
  return result == CUDA_SUCCESS ? s->backend->cuGraphExecHostNodeSetParams(exec, node, &params) : result;
}

/* --- graphs inside nodes --- */

CUresult vgx_cuGraphChildGraphNodeGetGraph(struct vgx_session *s,
                                           const struct vgw_req_cuGraphChildGraphNodeGetGraph *req, CUgraphNode node,
                                           CUgraph *graph) {
  (void)req;
  return is_whole_copy(s, node, NODE_GRAPH) ? CUDA_ERROR_INVALID_VALUE
                                            : s->backend->cuGraphChildGraphNodeGetGraph(node, graph);
}
