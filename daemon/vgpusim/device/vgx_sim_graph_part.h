/* Graphs inside nodes. */
#ifndef VGX_SIM_GRAPH_PART_H
#define VGX_SIM_GRAPH_PART_H

#include "vgx_sim_graph.h"

/* Add a node that owns `child` from then on. No lock held. */
CUresult vgx_sim_graph_move(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                            CUgraph child);

#endif
