/* Nodes of graphs. */
#ifndef VGS_GRAPH_NODE_H
#define VGS_GRAPH_NODE_H

#include "vgs_graph.h"

/* Wire id of the context that a node's parameters name; NULL: the current one. */
CUresult vgs_graph_context_id(CUcontext ctx, uint32_t *id);

/* Edge data that is all 0 says nothing; other data is not offered. */
CUresult vgs_graph_check_edges(const CUgraphEdgeData *data, size_t count);

/* Give the nodes of a graph their handles, those that have none yet. */
CUresult vgs_graph_name_nodes(struct vgs_graph *graph);

/* The object of a node that is about to be added (NULL: out of memory), and its entry among its graph's. */
struct vgs_graph_node *vgs_graph_node_create(struct vgs_graph *graph);
void vgs_graph_node_add(struct vgs_graph *graph, struct vgs_graph_node *node);

#endif
