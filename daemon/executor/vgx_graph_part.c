/* Nodes as the client knows them: a copy node that it made of two halves counts as one node, and the halves' host
 * functions do not count. */
#include <stdlib.h>

#include "vgx_custom.h"
#include "vgx_graph_condition.h"
#include "vgx_graph_part.h"
#include "vgx_launch.h"
#include "vgx_session.h"

enum { NODE_MEMCPY = 1, NODE_HOST = 3, NODE_GRAPH = 4 }; /* CUgraphNodeType */

bool vgx_graph_callback_of(struct vgx_session *s, CUgraphNode node, uint32_t *callback) {
  int type;
  CUDA_HOST_NODE_PARAMS params, ours = vgx_callback_of(s, 0);
  if (!s->backend->cuGraphNodeGetType || !s->backend->cuGraphHostNodeGetParams ||
      s->backend->cuGraphNodeGetType(node, &type) != CUDA_SUCCESS || type != NODE_HOST ||
      s->backend->cuGraphHostNodeGetParams(node, &params) != CUDA_SUCCESS || params.fn != ours.fn)
    return false;
  *callback = (uint32_t)(uintptr_t)params.userData;
  return true;
}

/* The nodes that the program knows, malloc'ed; `split`: the graph also has internal ones. */
static CUresult visible_nodes(struct vgx_session *s, CUgraph graph, CUgraphNode **nodes, size_t *count, bool *split) {
  size_t all = 0;
  CUresult result = s->backend->cuGraphGetNodes(graph, NULL, &all);
  if (result != CUDA_SUCCESS)
    return result;
  CUgraphNode *found = calloc(all + 1, sizeof *found);
  if (!found)
    return CUDA_ERROR_OUT_OF_MEMORY;
  if (all) /* NVIDIA's driver accepts no array when there are no nodes */
    result = s->backend->cuGraphGetNodes(graph, found, &all);
  if (result != CUDA_SUCCESS) {
    free(found);
    return result;
  }
  *count = 0;
  for (size_t i = 0; i < all; i++) {
    uint32_t callback;
    if (!vgx_graph_callback_of(s, found[i], &callback) || !(callback & VGW_CALLBACK_INTERNAL))
      found[(*count)++] = found[i];
  }
  *split = *count < all;
  *nodes = found;
  return CUDA_SUCCESS;
}

/* The two halves of a copy node. */
struct halves {
  CUgraph graph;      /* which they are in */
  CUgraphNode ours;   /* the client's host function */
  uint32_t callback;  /* its number */
  CUgraphNode theirs; /* the device's copy; NULL: none */
};

/* False: the node is no copy node of two halves. */
static bool find_halves(struct vgx_session *s, CUgraphNode node, struct halves *found) {
  enum { HALVES = 2 };
  CUgraphNode nodes[HALVES];
  size_t count = 0;
  uint32_t callback;
  *found = (struct halves){0};
  if (!s->backend->cuGraphChildGraphNodeGetGraph || !s->backend->cuGraphGetNodes ||
      s->backend->cuGraphChildGraphNodeGetGraph(node, &found->graph) != CUDA_SUCCESS ||
      s->backend->cuGraphGetNodes(found->graph, NULL, &count) != CUDA_SUCCESS || !count || count > HALVES ||
      s->backend->cuGraphGetNodes(found->graph, nodes, &count) != CUDA_SUCCESS)
    return false;
  for (size_t i = 0; i < count; i++)
    if (vgx_graph_callback_of(s, nodes[i], &callback) && callback & VGW_CALLBACK_WHOLE_COPY) {
      found->ours = nodes[i];
      found->callback = callback;
    } else {
      found->theirs = nodes[i];
    }
  return found->ours;
}

bool vgx_graph_is_whole_copy(struct vgx_session *s, CUgraphNode node) {
  struct halves halves;
  return find_halves(s, node, &halves);
}

CUresult vgx_graph_copy_params(struct vgx_session *s, CUgraphNode node, CUDA_MEMCPY3D *params, uint32_t *callback) {
  struct halves halves;
  *callback = 0;
  if (find_halves(s, node, &halves)) {
    *callback = halves.callback;
    return CUDA_SUCCESS;
  }
  if (!s->backend->cuGraphMemcpyNodeGetParams)
    return vgx_not_offered(s, "cuGraphMemcpyNodeGetParams");
  CUresult result = s->backend->cuGraphMemcpyNodeGetParams(node, params);
  return result == CUDA_SUCCESS ? vgx_copy_name_arrays(s, params) : result;
}

/* Let the halves follow each other in the copy's direction. */
static CUresult order_halves(struct vgx_session *s, const struct halves *halves, bool to_host) {
  size_t count = 0;
  CUresult result = s->backend->cuGraphNodeGetDependencies(halves->ours, NULL, &count);
  const CUgraphNode *first = count ? &halves->theirs : &halves->ours, *second = count ? &halves->ours : &halves->theirs;
  if (result != CUDA_SUCCESS || to_host == (count != 0))
    return result;
  result = s->backend->cuGraphRemoveDependencies(halves->graph, first, second, 1);
  return result == CUDA_SUCCESS ? s->backend->cuGraphAddDependencies(halves->graph, second, first, 1) : result;
}

CUresult vgx_graph_set_halves(struct vgx_session *s, CUgraphNode node, uint32_t callback, const CUDA_MEMCPY3D *copy,
                              bool to_host) {
  const struct vgx_backend *driver = s->backend;
  CUDA_HOST_NODE_PARAMS ours = vgx_callback_of(s, callback);
  struct halves halves;
  if (!driver->cuGraphMemcpyNodeSetParams || !driver->cuGraphHostNodeSetParams || !driver->cuGraphNodeGetDependencies ||
      !driver->cuGraphRemoveDependencies || !driver->cuGraphAddDependencies)
    return vgx_not_offered(s, "cuGraphMemcpyNodeSetParams");
  if (!find_halves(s, node, &halves) || !copy != !halves.theirs) /* a copy within the program's memory has one half */
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = copy ? driver->cuGraphMemcpyNodeSetParams(halves.theirs, copy) : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS && copy)
    result = order_halves(s, &halves, to_host);
  return result == CUDA_SUCCESS ? driver->cuGraphHostNodeSetParams(halves.ours, &ours) : result;
}

int vgx_graph_type_of(struct vgx_session *s, CUgraphNode node, int type) {
  return type == NODE_GRAPH && vgx_graph_is_whole_copy(s, node) ? NODE_MEMCPY : type;
}

uint32_t vgx_graph_place_of(struct vgx_session *s, CUgraph graph, CUgraphNode node) {
  CUgraphNode *nodes;
  size_t count = 0;
  uint32_t place = 0;
  bool split;
  if (!node || !s->backend->cuGraphGetNodes || visible_nodes(s, graph, &nodes, &count, &split) != CUDA_SUCCESS)
    return 0;
  for (size_t i = 0; i < count && !place; i++)
    place = nodes[i] == node ? (uint32_t)i + 1 : 0;
  for (size_t i = 0; i < count && !place; i++) {
    struct halves halves;
    if (find_halves(s, nodes[i], &halves) && (halves.ours == node || halves.theirs == node))
      place = (uint32_t)i + 1;
  }
  free(nodes);
  return place;
}

/* Give a node the client's id. */
static CUresult name_node(struct vgx_session *s, uint32_t graph, uint32_t id, CUgraphNode node, bool split) {
  int type;
  pthread_mutex_lock(&s->table_lock);
  bool known = vgx_handle_live_locked(s, VGW_KIND_GRAPH_NODE, id) == node; /* it got an id during its capture */
  pthread_mutex_unlock(&s->table_lock);
  if (known)
    return CUDA_SUCCESS;
  split = split && (s->backend->cuGraphNodeGetType(node, &type) != CUDA_SUCCESS || type == NODE_MEMCPY);
  enum vgx_reserved reserved = vgx_handle_reserve(s, VGW_KIND_GRAPH_NODE, id);
  if (reserved != VGX_RESERVED)
    return reserved == VGX_TAKEN ? vgx_violation(s, "node taken") : CUDA_ERROR_OUT_OF_MEMORY;
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
