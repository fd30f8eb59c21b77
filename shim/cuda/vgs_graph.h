/* What the files on graphs share. */
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

/* The object of an executable graph that is about to be made, with what its graph keeps; NULL: out of memory. */
struct vgs_graph_exec *vgs_graph_exec_create(struct vgs_graph *graph);

/* Before the object goes: those of a graph's nodes and of the graphs inside them; the latter of one node; what an
 * executable graph keeps. */
void vgs_graph_destroy_parts(struct vgs_graph *graph);
void vgs_graph_destroy_inside(struct vgs_graph_node *node);
void vgs_graph_exec_end(struct vgs_graph_exec *exec);

/* Before a launch: what the graph keeps is in use until it is over, or is the captured graph's. False: no memory. */
bool vgs_graph_exec_launch(struct vgs_graph_exec *exec, const struct vgs_stream *on, bool captured);

/* What an update has answered: the executable graph keeps `works` if it was made. */
CUresult vgs_graph_exec_updated(struct vgs_graph_exec *exec, struct vgs_works *works, int error, int reason,
                                CUgraphExecUpdateResultInfo *info);

#endif
