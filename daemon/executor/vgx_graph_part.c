/* What belongs to a graph: its nodes' ids, the graphs inside its nodes, its host functions. All of it lives as long as
 * the graph: destroying that makes the ids gone. */
#include <stdlib.h>

#include "vgx_custom.h"
#include "vgx_graph.h"

enum { NODE_MEMCPY = 1, NODE_HOST = 3, NODE_GRAPH = 4 }; /* CUgraphNodeType */

CUresult vgx_graph_of(struct vgx_session *s, uint32_t id, CUgraph *graph) {
  void *found;
  CUresult result = id ? vgx_handle(s, VGW_KIND_GRAPH, id, &found) : CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS)
    *graph = found;
  return result;
}

CUresult vgx_node_of(struct vgx_session *s, uint32_t id, CUgraphNode *node) {
  void *found;
  CUresult result = id ? vgx_handle(s, VGW_KIND_GRAPH_NODE, id, &found) : CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS)
    *node = found;
  return result;
}

CUresult vgx_node_in_exec(struct vgx_session *s, uint32_t exec_id, uint32_t node_id, CUgraphExec *exec,
                          CUgraphNode *node) {
  void *found;
  CUresult result = exec_id ? vgx_handle(s, VGW_KIND_GRAPH_EXEC, exec_id, &found) : CUDA_ERROR_INVALID_VALUE;
  if (result != CUDA_SUCCESS)
    return result;
  *exec = found;
  return vgx_node_of(s, node_id, node);
}

bool vgx_graph_note(struct vgx_session *s, const struct vgx_graph_part *part) {
  pthread_mutex_lock(&s->table_lock);
  if (s->graph_part_count == s->graph_part_capacity) {
    uint32_t capacity = s->graph_part_capacity ? 2 * s->graph_part_capacity : 64;
    struct vgx_graph_part *grown = realloc(s->graph_parts, capacity * sizeof *grown);
    if (grown) {
      s->graph_parts = grown;
      s->graph_part_capacity = capacity;
    }
  }
  bool room = s->graph_part_count < s->graph_part_capacity;
  if (room) {
    s->graph_parts[s->graph_part_count++] = *part;
    s->has_split |= part->split;
  }
  pthread_mutex_unlock(&s->table_lock);
  return room;
}

/* Take one part of a graph out, looking from place `*at` on; false: it has none. What belongs to a graph inside it
 * belongs to it from then on. */
static bool take_part(struct vgx_session *s, uint32_t graph, uint32_t *at, struct vgx_graph_part *part) {
  pthread_mutex_lock(&s->table_lock);
  while (*at < s->graph_part_count && s->graph_parts[*at].graph != graph)
    ++*at;
  bool found = *at < s->graph_part_count;
  if (found) {
    *part = s->graph_parts[*at];
    s->graph_parts[*at] = s->graph_parts[--s->graph_part_count];
  }
  if (found && part->kind == VGW_KIND_GRAPH) {
    *at = 0;
    for (uint32_t i = 0; i < s->graph_part_count; i++)
      if (s->graph_parts[i].graph == part->id)
        s->graph_parts[i].graph = graph;
  }
  pthread_mutex_unlock(&s->table_lock);
  return found;
}

/* Whether a graph lies inside a node, which owns it. */
static bool is_inside(struct vgx_session *s, uint32_t graph) {
  bool found = false;
  pthread_mutex_lock(&s->table_lock);
  for (uint32_t i = 0; i < s->graph_part_count && !found; i++)
    found = s->graph_parts[i].kind == VGW_KIND_GRAPH && s->graph_parts[i].id == graph;
  pthread_mutex_unlock(&s->table_lock);
  return found;
}

CUresult vgx_cuGraphDestroy(struct vgx_session *s, const struct vgw_req_cuGraphDestroy *req) {
  CUgraph graph;
  struct vgx_graph_part part;
  uint32_t at = 0;
  if (!s->backend->cuGraphDestroy)
    return vgx_not_offered(s, "cuGraphDestroy");
  CUresult result = vgx_graph_of(s, req->hGraph, &graph);
  if (result == CUDA_SUCCESS && is_inside(s, req->hGraph))
    result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS)
    result = s->backend->cuGraphDestroy(graph);
  if (result != CUDA_SUCCESS)
    return result;
  vgx_handle_set(s, VGW_KIND_GRAPH, req->hGraph, NULL);
  while (take_part(s, req->hGraph, &at, &part)) /* others may add meanwhile, never to this graph: it is gone */
    vgx_handle_set(s, part.kind, part.id, NULL);
  return CUDA_SUCCESS;
}

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

CUresult vgx_cuGraphNodeGetType(struct vgx_session *s, const struct vgw_req_cuGraphNodeGetType *req,
                                struct vgw_rep_cuGraphNodeGetType *rep) {
  CUgraphNode node;
  int type;
  if (!s->backend->cuGraphNodeGetType)
    return vgx_not_offered(s, "cuGraphNodeGetType");
  CUresult result = vgx_node_of(s, req->hNode, &node);
  if (result == CUDA_SUCCESS)
    result = s->backend->cuGraphNodeGetType(node, &type);
  if (result == CUDA_SUCCESS)
    rep->type = is_whole_copy(s, node, type) ? NODE_MEMCPY : type;
  return result;
}

/* Give a node the client's id. */
static CUresult name_node(struct vgx_session *s, uint32_t graph, uint32_t id, CUgraphNode node, bool split) {
  int type;
  split = split && (s->backend->cuGraphNodeGetType(node, &type) != CUDA_SUCCESS || type == NODE_MEMCPY);
  struct vgx_graph_part part = {.graph = graph, .id = id, .kind = VGW_KIND_GRAPH_NODE, .split = split};
  if (!vgx_handle_reserve(s, VGW_KIND_GRAPH_NODE, id))
    return vgx_violation(s, "node taken");
  bool noted = vgx_graph_note(s, &part);
  vgx_handle_set(s, VGW_KIND_GRAPH_NODE, id, noted ? node : NULL);
  return noted ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult vgx_cuGraphGetNodes(struct vgx_session *s, const struct vgw_req_cuGraphGetNodes *req, const void *ids,
                             struct vgw_rep_cuGraphGetNodes *rep) {
  CUgraph graph;
  CUgraphNode *nodes;
  size_t count = 0, named = req->ids_nbytes / sizeof(uint32_t);
  bool split;
  if (!s->backend->cuGraphGetNodes)
    return vgx_not_offered(s, "cuGraphGetNodes");
  if (req->ids_nbytes % sizeof(uint32_t))
    return vgx_violation(s, "ids of graph nodes");
  CUresult result = vgx_graph_of(s, req->hGraph, &graph);
  if (result == CUDA_SUCCESS)
    result = visible_nodes(s, graph, &nodes, &count, &split);
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

/* The client's id of a graph's node; 0: it has none. */
static uint32_t id_of(struct vgx_session *s, uint32_t graph, CUgraphNode node) {
  uint32_t id = 0;
  pthread_mutex_lock(&s->table_lock);
  for (uint32_t i = 0; i < s->graph_part_count && !id; i++) {
    const struct vgx_graph_part *part = &s->graph_parts[i];
    if (part->graph == graph && part->kind == VGW_KIND_GRAPH_NODE && vgx_handle_is(s, part->kind, part->id, node))
      id = part->id;
  }
  pthread_mutex_unlock(&s->table_lock);
  return id;
}

CUresult vgx_cuGraphNodeFindInClone(struct vgx_session *s, const struct vgw_req_cuGraphNodeFindInClone *req,
                                    struct vgw_rep_cuGraphNodeFindInClone *rep) {
  CUgraph clone;
  CUgraphNode original, found;
  if (!s->backend->cuGraphNodeFindInClone)
    return vgx_not_offered(s, "cuGraphNodeFindInClone");
  CUresult result = vgx_node_of(s, req->hNode, &original);
  if (result == CUDA_SUCCESS)
    result = vgx_graph_of(s, req->hGraph, &clone);
  if (result == CUDA_SUCCESS)
    result = s->backend->cuGraphNodeFindInClone(&found, original, clone);
  if (result != CUDA_SUCCESS)
    return result;
  rep->node = id_of(s, req->hGraph, found);
  return rep->node ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* --- host functions --- */

/* A graph's callbacks come due any number of times, and the client knows them by their ids. */
static CUresult check_callback(struct vgx_session *s, uint32_t id, CUDA_HOST_NODE_PARAMS *params) {
  if (!(id & VGW_CALLBACK_OF_GRAPH))
    return vgx_violation(s, "a graph's callback without its mark");
  vgx_callback_of(s, id, params);
  return CUDA_SUCCESS;
}

CUresult vgx_cuGraphAddHostNode(struct vgx_session *s, const struct vgw_req_cuGraphAddHostNode *req,
                                const void *dependencies) {
  CUDA_HOST_NODE_PARAMS params;
  if (!s->backend->cuGraphAddHostNode)
    return vgx_not_offered(s, "cuGraphAddHostNode");
  CUresult result = check_callback(s, req->callback, &params);
  if (result != CUDA_SUCCESS)
    return result;
  VGX_ADD(s, req, dependencies, s->backend->cuGraphAddHostNode(VGX_PLACE, &params));
}

CUresult vgx_cuGraphHostNodeGetParams(struct vgx_session *s, const struct vgw_req_cuGraphHostNodeGetParams *req,
                                      struct vgw_rep_cuGraphHostNodeGetParams *rep) {
  CUgraphNode node;
  if (!s->backend->cuGraphHostNodeGetParams)
    return vgx_not_offered(s, "cuGraphHostNodeGetParams");
  CUresult result = vgx_node_of(s, req->hNode, &node);
  if (result != CUDA_SUCCESS)
    return result;
  return callback_of(s, node, &rep->callback) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult vgx_cuGraphHostNodeSetParams(struct vgx_session *s, const struct vgw_req_cuGraphHostNodeSetParams *req) {
  CUgraphNode node;
  CUDA_HOST_NODE_PARAMS params;
  if (!s->backend->cuGraphHostNodeSetParams)
    return vgx_not_offered(s, "cuGraphHostNodeSetParams");
  CUresult result = check_callback(s, req->callback, &params);
  if (result == CUDA_SUCCESS)
    result = vgx_node_of(s, req->hNode, &node);
  return result == CUDA_SUCCESS ? s->backend->cuGraphHostNodeSetParams(node, &params) : result;
}

CUresult vgx_cuGraphExecHostNodeSetParams(struct vgx_session *s,
                                          const struct vgw_req_cuGraphExecHostNodeSetParams *req) {
  CUgraphExec exec;
  CUgraphNode node;
  CUDA_HOST_NODE_PARAMS params;
  if (!s->backend->cuGraphExecHostNodeSetParams)
    return vgx_not_offered(s, "cuGraphExecHostNodeSetParams");
  CUresult result = check_callback(s, req->callback, &params);
  if (result == CUDA_SUCCESS)
    result = vgx_node_in_exec(s, req->hGraphExec, req->hNode, &exec, &node);
  return result == CUDA_SUCCESS ? s->backend->cuGraphExecHostNodeSetParams(exec, node, &params) : result;
}

/* --- graphs inside nodes --- */

CUresult vgx_cuGraphAddChildGraphNode(struct vgx_session *s, const struct vgw_req_cuGraphAddChildGraphNode *req,
                                      const void *dependencies) {
  CUgraph child;
  if (!s->backend->cuGraphAddChildGraphNode)
    return vgx_not_offered(s, "cuGraphAddChildGraphNode");
  CUresult result = vgx_graph_of(s, req->childGraph, &child);
  if (result != CUDA_SUCCESS)
    return result;
  VGX_ADD(s, req, dependencies, s->backend->cuGraphAddChildGraphNode(VGX_PLACE, child));
}

/* The graph a node belongs to; 0: none. */
static uint32_t graph_of(struct vgx_session *s, uint32_t node) {
  uint32_t graph = 0;
  pthread_mutex_lock(&s->table_lock);
  for (uint32_t i = 0; i < s->graph_part_count && !graph; i++)
    if (s->graph_parts[i].kind == VGW_KIND_GRAPH_NODE && s->graph_parts[i].id == node)
      graph = s->graph_parts[i].graph;
  pthread_mutex_unlock(&s->table_lock);
  return graph;
}

CUresult vgx_cuGraphChildGraphNodeGetGraph(struct vgx_session *s,
                                           const struct vgw_req_cuGraphChildGraphNodeGetGraph *req) {
  CUgraphNode node;
  CUgraph inside;
  struct vgx_graph_part part = {.graph = graph_of(s, req->hNode), .id = req->graph, .kind = VGW_KIND_GRAPH};
  if (!s->backend->cuGraphChildGraphNodeGetGraph)
    return vgx_not_offered(s, "cuGraphChildGraphNodeGetGraph");
  CUresult result = vgx_node_of(s, req->hNode, &node);
  if (result == CUDA_SUCCESS && (!part.graph || is_whole_copy(s, node, NODE_GRAPH)))
    result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS)
    result = s->backend->cuGraphChildGraphNodeGetGraph(node, &inside);
  if (!vgx_handle_reserve(s, VGW_KIND_GRAPH, req->graph))
    return vgx_violation(s, "graph taken");
  if (result == CUDA_SUCCESS && !vgx_graph_note(s, &part))
    result = CUDA_ERROR_OUT_OF_MEMORY;
  vgx_handle_set(s, VGW_KIND_GRAPH, req->graph, result == CUDA_SUCCESS ? inside : NULL);
  return result;
}

CUresult vgx_cuGraphExecChildGraphNodeSetParams(struct vgx_session *s,
                                                const struct vgw_req_cuGraphExecChildGraphNodeSetParams *req) {
  CUgraphExec exec;
  CUgraphNode node;
  CUgraph child;
  if (!s->backend->cuGraphExecChildGraphNodeSetParams)
    return vgx_not_offered(s, "cuGraphExecChildGraphNodeSetParams");
  CUresult result = vgx_node_in_exec(s, req->hGraphExec, req->hNode, &exec, &node);
  if (result == CUDA_SUCCESS)
    result = vgx_graph_of(s, req->childGraph, &child);
  return result == CUDA_SUCCESS ? s->backend->cuGraphExecChildGraphNodeSetParams(exec, node, child) : result;
}
