/* Graphs that are moved into a node, and nodes that take another's place. */
#ifndef VGX_GRAPH_OWNER_H
#define VGX_GRAPH_OWNER_H

#include "vgx_session.h"

/* Whether a graph may be moved into a node of graph `parent`: no node owns it, and `parent` does not lie in it. */
bool vgx_graph_may_move(struct vgx_session *s, uint32_t graph, uint32_t parent);

/* Add a node to `graph` that becomes the owner of `child`. */
CUresult vgx_graph_move_child(struct vgx_session *s, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                              CUgraph child, CUgraphNode *node);
/* The node that graph `graph` was moved into has its id: the graph dies with it. */
void vgx_graph_moved(struct vgx_session *s, uint32_t graph, uint32_t node);

/* Let the ids of two nodes of one graph, and of what lies in them, change places. INVALID_VALUE: they are not of one
 * graph. */
CUresult vgx_graph_swap_nodes(struct vgx_session *s, uint32_t node, uint32_t other);

#endif
