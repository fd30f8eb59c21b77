/* Data of edges between nodes. */
#ifndef VGX_SIM_GRAPH_EDGE_H
#define VGX_SIM_GRAPH_EDGE_H

#include "vgx_sim_graph.h"

/* Whether an edge from a node to one of type `to` may have that data. */
bool vgx_sim_edge_is_sound(CUgraphNode from, uint32_t to, const CUgraphEdgeData *data);

#endif
