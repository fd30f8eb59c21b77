/* Queries of a graph's nodes. */
#ifndef VGX_GRAPH_PART_H
#define VGX_GRAPH_PART_H

#include "vgx_session.h"

/* The client's number of a node's host function. False: not a host node, or the function is not the client's. */
bool vgx_graph_callback_of(struct vgx_session *s, CUgraphNode node, uint32_t *callback);

/* Whether a node is a copy that the client has split into two halves: a child graph that holds only these. */
bool vgx_graph_is_whole_copy(struct vgx_session *s, CUgraphNode node);

/* The parameters of a copy node, with ids of arrays; or, of a copy in two halves, the number of their host function. */
CUresult vgx_graph_copy_params(struct vgx_session *s, CUgraphNode node, CUDA_MEMCPY3D *params, uint32_t *callback);

/* The place of a node among those of the graph that the program knows, from 1; 0: it is none of them. Half of a copy
 * counts as the copy. */
uint32_t vgx_graph_place_of(struct vgx_session *s, CUgraph graph, CUgraphNode node);

/* Give a copy in two halves another host function and another copy of the device's; NULL: it has none. */
CUresult vgx_graph_set_halves(struct vgx_session *s, CUgraphNode node, uint32_t callback, const CUDA_MEMCPY3D *copy,
                              bool to_host);

/* The CUgraphNodeType that is returned to the program where the driver returns `type`. */
int vgx_graph_type_of(struct vgx_session *s, CUgraphNode node, int type);

#endif
