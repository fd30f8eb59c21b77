/* What belongs to graphs besides their nodes: works, graphs inside nodes, clones. */
#ifndef VGS_GRAPH_PART_H
#define VGS_GRAPH_PART_H

#include "vgs_graph.h"

/* The graph that keeps the works of a graph and of the graphs inside it: the outermost one. */
struct vgs_graph *vgs_graph_outermost(struct vgs_graph *graph);

/* Release the works that an executable graph has kept until now, once its launches are over. False: they are never
 * released, because its launches cannot be waited for. */
bool vgs_graph_exec_clear_works(struct vgs_graph_exec *exec, struct vgs_works *works);

/* The object of a graph that is about to be made as a clone, with references to the works that the original graph
 * keeps. NULL: out of memory. */
struct vgs_graph *vgs_graph_create_clone(struct vgs_graph *original);

/* The object of a node that is about to be added: with a host function, or with a graph inside. The node's graph keeps
 * the works from now on; NULL: out of memory. */
struct vgs_graph_node *vgs_graph_node_create_with(struct vgs_graph *graph, struct vgs_work *work);
struct vgs_graph_node *vgs_graph_node_create_child(struct vgs_graph *graph, struct vgs_graph *child);

/* Adding a node has failed: release its works. */
void vgs_graph_remove_child(struct vgs_graph *graph, const struct vgs_graph_node *node);

/* Add a node that owns a graph from then on (CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE); the graph keeps its handle. */
CUresult vgs_graph_move_child(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                              CUgraph moved);

/* Work for a host node's parameters. */
CUresult vgs_graph_work(const CUDA_HOST_NODE_PARAMS *params, struct vgs_work **work);

/* Replace a node's work or inner graph, in its graph or in an executable graph, which takes its own references.
 * OUT_OF_MEMORY: the caller's references are taken and never dropped, because the worker's node uses the works. */
CUresult vgs_graph_set_work(struct vgs_graph_node *node, struct vgs_work **work);
CUresult vgs_graph_exec_set_work(struct vgs_graph_exec *exec, const struct vgs_graph_node *node,
                                 struct vgs_work **work);
CUresult vgs_graph_exec_set_child(struct vgs_graph_exec *exec, const struct vgs_graph_node *node,
                                  struct vgs_works *works);

/* The object of the graph inside a node; NULL: out of memory. */
struct vgs_graph *vgs_graph_create_inside(const struct vgs_graph_node *node);

#endif
