/* Graphs and stream capture, as the simulator's files share them.
 *
 * A node's work is an operation that can be run any number of times, at once too: nothing changes it once it is made.
 * Changing a node's parameters gives it other work. Locking: the runtime lock guards graphs, captures and references.
 */
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

#define VGX_SIM_GRAPH_NODES_MAX (1u << 20) /* of a graph and those within it: a graph put into itself doubles */

struct vgx_sim_work {
  uint32_t refs;
  CUcontext ctx; /* NULL: any */
  struct vgx_sim_op *op;
};

struct CUgraphNode_st {
  uint32_t magic;
  CUgraph graph;
  uint64_t serial; /* of all nodes ever: how an executable graph knows it */
  uint64_t origin; /* serial of the node it was cloned from */
  uint32_t index;  /* in its graph */
  uint32_t type;
  struct vgx_sim_work *work; /* NULL: empty node, child graph */
  CUgraph child;             /* the node's own; NULL: none */
  uint32_t *dependencies;    /* indices */
  uint32_t dependency_count;
  bool captured; /* by a stream, which must be joined */
};

struct CUgraph_st {
  uint32_t magic;
  CUgraphNode *nodes; /* in the order they were added */
  uint32_t count, capacity;
  CUgraphNode owner; /* the node it lies in; NULL: none */
  uint32_t height;   /* of the child graphs within it */
  bool capturing;    /* a capture adds to it */
};

/* Add a node that depends on others of its graph; takes the reference to `work` (NULL: empty node) on success. Runtime
 * lock held. */
CUresult vgx_sim_graph_add_locked(CUgraph graph, uint32_t type, struct vgx_sim_work *work, const uint32_t *dependencies,
                                  uint32_t dependency_count, CUgraphNode *made);
/* Likewise, for a node with `op` (NULL: none), which is taken over. No lock held. */
CUresult vgx_sim_graph_add(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                           uint32_t type, CUcontext ctx, struct vgx_sim_op *op);
/* Put `child`, which is taken over when it succeeds, into a node. OUT_OF_MEMORY: too many graphs within each other. */
CUresult vgx_sim_graph_put_locked(CUgraphNode node, CUgraph child);
uint64_t vgx_sim_graph_count(CUgraph graph);          /* of nodes, those of child graphs too; runtime lock held */
CUgraph vgx_sim_graph_clone_locked(CUgraph original); /* NULL: out of memory */
bool vgx_sim_is_graph(CUgraph graph);
bool vgx_sim_is_node(CUgraphNode node);
/* Give a node of this type other work: `op` is taken over. No lock held. */
CUresult vgx_sim_node_change(CUgraphNode node, uint32_t type, CUcontext ctx, struct vgx_sim_op *op);
CUgraph vgx_sim_graph_create(void);        /* NULL: out of memory */
void vgx_sim_graph_destroy(CUgraph graph); /* no lock held */
struct vgx_sim_work *vgx_sim_work_create(CUcontext ctx,
                                         struct vgx_sim_op *op); /* takes ownership of op, also on failure */
void vgx_sim_work_unref(struct vgx_sim_work *work);              /* no lock held; NULL: nothing */

/* The work of a node with these parameters, and the context it is for. */
CUresult vgx_sim_kernel_op(const CUDA_KERNEL_NODE_PARAMS_v2 *params, CUcontext *ctx, struct vgx_sim_op **op);
CUresult vgx_sim_memcpy_op(const CUDA_MEMCPY3D *params, CUcontext given, CUcontext *ctx, struct vgx_sim_op **op);
CUresult vgx_sim_memset_op(const CUDA_MEMSET_NODE_PARAMS *params, CUcontext given, CUcontext *ctx,
                           struct vgx_sim_op **op);

/* Operations as if submitted, but made only (vgx_sim_launch.c, vgx_sim_copy.c, vgx_sim_set.c). Host memory in a copy is
 * read and written when it runs. */
CUresult vgx_sim_launch_create(CUcontext ctx, CUfunction handle, const uint32_t grid[3], const uint32_t block[3],
                               uint32_t dynamic_nbytes, void **kernel_params, void **extra, struct vgx_sim_op **op);
CUresult vgx_sim_copy_create(CUcontext ctx, const CUDA_MEMCPY3D *copy, struct vgx_sim_op **op);
CUresult vgx_sim_fill_create(const CUDA_MEMSET_NODE_PARAMS *params, struct vgx_sim_op **op);

/* What a launch, a fill was given. The pointers are good as long as the operation. */
void vgx_sim_launch_params(const struct vgx_sim_op *op, CUDA_KERNEL_NODE_PARAMS_v2 *params);
void vgx_sim_fill_params(const struct vgx_sim_op *op, CUDA_MEMSET_NODE_PARAMS *params);

CUresult vgx_sim_host_create(const CUDA_HOST_NODE_PARAMS *params, struct vgx_sim_op **op);
void vgx_sim_host_params(const struct vgx_sim_op *op, CUDA_HOST_NODE_PARAMS *params);

/* A launch in a capturing stream: `child`, taken over when it succeeds, becomes a node. */
CUresult vgx_sim_capture_child_locked(CUstream stream, CUgraph child);

/* For a launch: pin (1) or unpin (-1) its module; false when it is unloaded. Other operations: true. */
bool vgx_sim_launch_pin_locked(const struct vgx_sim_op *op, int change);

#endif
