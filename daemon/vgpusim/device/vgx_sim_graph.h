/* Graphs and stream capture, as the simulator's files share them.
 *
 * A node's work is an operation that can run any number of times, also concurrently: once created, it never
 * changes. Changing a node's parameters replaces its work. Locking: the runtime lock guards graphs, captures and
 * references. */
#ifndef VGX_SIM_GRAPH_H
#define VGX_SIM_GRAPH_H

#include "vgx_sim_internal.h"

enum vgx_sim_node_type { /* CUgraphNodeType */
                         VGX_SIM_NODE_KERNEL = 0,
                         VGX_SIM_NODE_MEMCPY = 1,
                         VGX_SIM_NODE_MEMSET = 2,
                         VGX_SIM_NODE_HOST = 3,
                         VGX_SIM_NODE_GRAPH = 4,
                         VGX_SIM_NODE_EMPTY = 5,
};

/* Nodes of a graph and of those inside it: adding a graph to itself doubles it. */
#define VGX_SIM_DEPENDENCIES_MAX (1u << 20) /* of one node */
#define VGX_SIM_GRAPH_NODES_MAX (1u << 20)

struct vgx_sim_work {
  uint32_t refs;
  CUcontext ctx; /* NULL: any */
  struct vgx_sim_op *op;
};

struct CUgraphNode_st {
  uint32_t magic;
  CUgraph graph;
  uint64_t serial; /* unique for ever: identifies the node in executable graphs */
  uint64_t origin; /* serial of the node it was cloned from */
  uint32_t index;  /* in its graph */
  uint32_t type;
  struct vgx_sim_work *work; /* NULL: empty node, child graph */
  CUgraph child;             /* the node's own; NULL: none */
  CUgraph *bodies;           /* of a conditional node */
  uint32_t body_count;
  uint32_t *dependencies; /* indices */
  CUgraphEdgeData *edges; /* the data of each */
  uint32_t dependency_count;
  bool captured;                      /* by a stream that must be joined before the capture ends */
  CUlaunchAttributeValue *attributes; /* of a kernel node (vgx_sim_graph_attribute.c); NULL: the initial ones */
};

struct CUgraph_st {
  uint32_t magic;
  CUgraphNode *nodes; /* in the order they were added */
  uint32_t count, capacity;
  uint64_t steps;                       /* of the graph and those within it: vgx_sim_graph_count */
  CUgraphNode owner;                    /* the node it lies in; NULL: none */
  uint32_t height;                      /* of the child graphs within it */
  bool moved;                           /* `owner` holds this graph itself, not a copy of it */
  bool capturing;                       /* a capture adds nodes to the graph */
  struct vgx_sim_condition *conditions; /* made for it (vgx_sim_graph_condition.c) */
};

/* The number that records of a node's work carry as graph_node, for each executable graph that has the node. */
CUresult vgx_sim_node_number(CUgraphNode node, uint64_t *number);

/* Add a node that depends on others of its graph; takes the reference to `work` (NULL: empty node) on success. Runtime
 * lock held. */
CUresult vgx_sim_graph_add_locked(CUgraph graph, uint32_t type, struct vgx_sim_work *work, const uint32_t *dependencies,
                                  uint32_t dependency_count, CUgraphNode *made);
/* Likewise, for a node with `op` (NULL: none), which is taken over. No lock held. */
CUresult vgx_sim_graph_add(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                           uint32_t type, CUcontext ctx, struct vgx_sim_op *op);
/* Put `child` into a node, which owns it on success. OUT_OF_MEMORY: graphs are nested too deeply. */
CUresult vgx_sim_graph_embed_locked(CUgraphNode node, CUgraph child);
/* Give a conditional node its graphs. No lock held. */
CUresult vgx_sim_graph_put_bodies(CUgraphNode node, uint32_t count);
/* Whether a graph, or one of its child graphs, has nodes of memory (`memory`) or conditional ones: such graphs are not
 * cloned, because memory and conditions belong to one graph alone. */
bool vgx_sim_graph_has_locked(CUgraph graph, bool memory);
/* Remove a node from its graph: the nodes behind it move up, since a node's index is its place in the graph. */
void vgx_sim_node_remove_locked(CUgraphNode node);
uint64_t vgx_sim_graph_count(CUgraph graph); /* of steps, with those of the graphs within it; runtime lock held */
/* A graph has gained (or lost, if negative) steps, and so have those it lies in. Runtime lock held. */
void vgx_sim_graph_grow_locked(CUgraph graph, int64_t steps);
CUgraph vgx_sim_graph_clone_locked(CUgraph original); /* NULL: out of memory */
bool vgx_sim_is_graph(CUgraph graph);
bool vgx_sim_is_node(CUgraphNode node);
/* Whether `node` is a node of that type and has work of its own. */
bool vgx_sim_node_does(CUgraphNode node, uint32_t type);
/* Replace the work of a node of this type; takes ownership of `op`. No lock held. */
CUresult vgx_sim_node_change(CUgraphNode node, uint32_t type, CUcontext ctx, struct vgx_sim_op *op);
CUgraph vgx_sim_graph_create(void);          /* NULL: out of memory */
void vgx_sim_graph_destroy(CUgraph graph);   /* no lock held */
void vgx_sim_node_destroy(CUgraphNode node); /* free a node that its graph no longer lists; no lock held */
struct vgx_sim_work *vgx_sim_work_create(CUcontext ctx,
                                         struct vgx_sim_op *op); /* takes ownership of op, also on failure */
void vgx_sim_work_unref(struct vgx_sim_work *work);              /* no lock held; NULL: nothing */

/* A value that kernels set, for conditional nodes. */
struct vgx_sim_condition {
  uint32_t refs; /* the graph it was made for, and nodes' work */
  struct vgx_sim_device *device;
  uint64_t address; /* address of its word on the device: the number that the client receives */
  uint32_t initial;
  bool assigned; /* each launch sets the word to `initial` */
  struct vgx_sim_condition *next;
};
void vgx_sim_condition_unref(struct vgx_sim_condition *condition); /* no lock held */

#endif
