/* Nodes of graphs. */
#ifndef VGS_GRAPH_NODE_H
#define VGS_GRAPH_NODE_H

#include "vgs_graph.h"

/* Wire id of the context that a node's parameters name; NULL: the current one. */
CUresult vgs_graph_context_id(CUcontext ctx, uint32_t *id);

/* Edge data that is all 0 has no effect. */
bool vgs_edges_have_data(const CUgraphEdgeData *data, size_t count);

/* Create handles for those nodes of a graph that have none yet. */
CUresult vgs_graph_name_nodes(struct vgs_graph *graph);

/* Create the object of a node that is about to be added (NULL: out of memory); add it to its graph's nodes. */
struct vgs_graph_node *vgs_graph_node_create(struct vgs_graph *graph);
void vgs_graph_node_add(struct vgs_graph *graph, struct vgs_graph_node *node);

/* Adding a node: the caller sends the request between these two calls and passes its result to the second. */
struct vgs_graph_adding {
  struct vgs_graph *graph;
  struct vgs_graph_node *node;
  uint32_t *dependencies;
  size_t count;
};
CUresult vgs_graph_adding_begin(struct vgs_graph_adding *a, CUgraphNode *made, CUgraph graph,
                                const CUgraphNode *dependencies, size_t count);
CUresult vgs_graph_adding_end(struct vgs_graph_adding *a, CUgraphNode *made, CUresult result);

#endif
