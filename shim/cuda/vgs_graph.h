/* What the files vgs_graph*.c share. */
#ifndef VGS_GRAPH_H
#define VGS_GRAPH_H

#include "vgs_objects.h"

static inline struct vgs_graph *vgs_graph_find(CUgraph handle) { return vgs_object_find(VGW_KIND_GRAPH, handle); }
static inline struct vgs_graph_node *vgs_graph_node_find(CUgraphNode handle) {
  return vgs_object_find(VGW_KIND_GRAPH_NODE, handle);
}
static inline struct vgs_graph_exec *vgs_graph_exec_find(CUgraphExec handle) {
  return vgs_object_find(VGW_KIND_GRAPH_EXEC, handle);
}

/* The object of an executable graph that is about to be made, with its graph's works; NULL: out of memory. */
struct vgs_graph_exec *vgs_graph_exec_create(struct vgs_graph *graph);

/* Called before an object is destroyed. For a graph: destroy the objects of its nodes and of the graphs inside them;
 * for a node: of the graphs inside it; for an executable graph: release the work that it keeps. */
void vgs_graph_destroy_parts(struct vgs_graph *graph);
void vgs_graph_destroy_inside(struct vgs_graph_node *node);
void vgs_graph_exec_end(struct vgs_graph_exec *exec);

/* Called before a launch: the work that the graph keeps stays in use until the launch is over; a captured launch hands
 * it to the captured graph. False: out of memory. */
bool vgs_graph_exec_launch(struct vgs_graph_exec *exec, const struct vgs_stream *on, bool captured);

/* Called with the result of an update: on success the executable graph keeps `works`. */
CUresult vgs_graph_exec_updated(struct vgs_graph_exec *exec, struct vgs_works *works, int error, int reason,
                                CUgraphExecUpdateResultInfo *info);
/* After a failed one: which nodes of `graph` do not fit, by their places from 1; 0: none. */
void vgs_graph_exec_not_updated(struct vgs_graph *graph, uint32_t node, uint32_t from,
                                CUgraphExecUpdateResultInfo *info);

#endif
