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

/* The graph that keeps a graph's works: the outermost. */
struct vgs_graph *vgs_graph_outermost(struct vgs_graph *graph);

/* Let go of what an executable graph kept until now. False: never, for its launches cannot be waited for. */
bool vgs_graph_exec_retire(struct vgs_graph_exec *exec, struct vgs_works *works);

/* The objects of a graph that is about to be made from another, with what that keeps; NULL: out of memory. */
struct vgs_graph *vgs_graph_create_clone(struct vgs_graph *original);
struct vgs_graph_exec *vgs_graph_exec_create(struct vgs_graph *graph);

/* Before the object goes: those of a graph's nodes and of the graphs inside them; what an executable graph keeps. */
void vgs_graph_forget_parts(struct vgs_graph *graph);
void vgs_graph_exec_end(struct vgs_graph_exec *exec);

/* Before a launch: what the graph keeps is in use until it is over, or is the captured graph's. False: no memory. */
bool vgs_graph_exec_launch(struct vgs_graph_exec *exec, const struct vgs_stream *on, bool captured);

/* Whether a stream can be captured in a mode; then, that it is, into a graph whose object there may be already. */
CUresult vgs_graph_capture_check(const struct vgs_stream *stream, int mode);
CUresult vgs_graph_capture_begin(struct vgs_stream *stream, struct vgs_graph *graph, int mode, bool owned);

/* Wire id of the context that a node's parameters name; NULL: the current one. */
CUresult vgs_graph_context_id(CUcontext ctx, uint32_t *id);

/* Edge data that is all 0 says nothing; other data is not offered. */
CUresult vgs_graph_check_edges(const CUgraphEdgeData *data, size_t count);

/* Give the nodes of a graph their handles, those that have none yet. */
CUresult vgs_graph_name_nodes(struct vgs_graph *graph);

/* The object of a node that is about to be added (NULL: out of memory), and its entry among its graph's. */
struct vgs_graph_node *vgs_graph_node_create(struct vgs_graph *graph);
void vgs_graph_node_add(struct vgs_graph *graph, struct vgs_graph_node *node);

/* Likewise of a node with a host function, or with a graph inside, whose works its graph keeps from now on. */
struct vgs_graph_node *vgs_graph_node_create_with(struct vgs_graph *graph, struct vgs_work *work);
struct vgs_graph_node *vgs_graph_node_create_child(struct vgs_graph *graph, struct vgs_graph *child);

/* The works of a node whose adding has failed are kept no longer. */
void vgs_graph_drop_child(struct vgs_graph *graph, const struct vgs_graph_node *node);

/* Work for a host node's parameters. */
CUresult vgs_graph_work(const CUDA_HOST_NODE_PARAMS *params, struct vgs_work **work);

/* A node has other work, or another graph, from now on: in its graph, or in an executable one. On success what is kept
 * is no longer the caller's. OUT_OF_MEMORY: nobody keeps it, and it is never freed, for the node has it. */
CUresult vgs_graph_set_work(struct vgs_graph_node *node, struct vgs_work **work);
CUresult vgs_graph_exec_set_work(struct vgs_graph_exec *exec, const struct vgs_graph_node *node,
                                 struct vgs_work **work);
CUresult vgs_graph_exec_set_child(struct vgs_graph_exec *exec, const struct vgs_graph_node *node,
                                  struct vgs_works *works);

/* The object of the graph inside a node; NULL: out of memory. */
struct vgs_graph *vgs_graph_create_inside(const struct vgs_graph_node *node);

/* What an update has answered: the executable graph keeps `works` if it was made. */
CUresult vgs_graph_exec_updated(struct vgs_graph_exec *exec, struct vgs_works *works, int error, int reason,
                                CUgraphExecUpdateResultInfo *info);

#endif
