/* Graphs that are moved into a node, and nodes that take another's place.
 *
 * The table of handles says what dies with what. Calls that name graphs or nodes run one at a time in a session
 * (VGX_ALONE), so no thread uses a node while its id changes hands. */
#include "vgx_graph_owner.h"

#include "vgx_handle.h"

enum { OWNERSHIP_MOVE = 1 }; /* CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE */

bool vgx_graph_may_move(struct vgx_session *s, uint32_t graph, uint32_t parent) {
  vgx_name moved = vgx_name_of(VGW_KIND_GRAPH, graph), at = vgx_name_of(VGW_KIND_GRAPH, parent);
  pthread_mutex_lock(&s->table_lock);
  bool may = vgx_handle_live_locked(s, VGW_KIND_GRAPH, graph) && !vgx_link_locked(s, moved)->owner;
  for (; may && at; at = vgx_link_locked(s, at)->owner)
    may = at != moved;
  pthread_mutex_unlock(&s->table_lock);
  return may;
}

CUresult vgx_graph_move_child(struct vgx_session *s, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                              CUgraph child, CUgraphNode *node) {
  CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph = {.graph = child, .ownership = OWNERSHIP_MOVE}};
  if (!s->backend->cuGraphAddNode_v2)
    return vgx_not_offered(s, "cuGraphAddNode");
  return s->backend->cuGraphAddNode_v2(node, graph, dependencies, NULL, count, &params);
}

void vgx_graph_moved(struct vgx_session *s, uint32_t graph, uint32_t node) {
  pthread_mutex_lock(&s->table_lock);
  vgx_own_locked(s, vgx_name_make(VGW_KIND_GRAPH, graph), vgx_name_make(VGW_KIND_GRAPH_NODE, node));
  pthread_mutex_unlock(&s->table_lock);
}

/* Have `name` own what is listed from `first` on. */
static void own_all_locked(struct vgx_session *s, vgx_name name, vgx_name first) {
  vgx_link_locked(s, name)->first = first;
  for (vgx_name at = first; at; at = vgx_link_locked(s, at)->next)
    vgx_link_locked(s, at)->owner = name;
}

CUresult vgx_graph_swap_nodes(struct vgx_session *s, uint32_t node, uint32_t other) {
  vgx_name a = vgx_name_of(VGW_KIND_GRAPH_NODE, node), b = vgx_name_of(VGW_KIND_GRAPH_NODE, other);
  pthread_mutex_lock(&s->table_lock);
  void *first = vgx_handle_live_locked(s, VGW_KIND_GRAPH_NODE, node);
  void *second = vgx_handle_live_locked(s, VGW_KIND_GRAPH_NODE, other);
  bool fits = first && second && vgx_link_locked(s, a)->owner == vgx_link_locked(s, b)->owner;
  if (fits) {
    vgx_name inside = vgx_link_locked(s, a)->first;
    own_all_locked(s, a, vgx_link_locked(s, b)->first);
    own_all_locked(s, b, inside);
    atomic_store(vgx_place(s, a), second);
    atomic_store(vgx_place(s, b), first);
  }
  pthread_mutex_unlock(&s->table_lock);
  return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
