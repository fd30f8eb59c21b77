/* What the executor's files on graphs share. */
#ifndef VGX_GRAPH_H
#define VGX_GRAPH_H

#include "vgx_session.h"

/* What adding a node begins and ends with. */
struct vgx_adding {
  CUgraph graph;
  CUgraphNode *dependencies, made;
  uint32_t count;
};

CUresult vgx_adding_begin(struct vgx_session *s, struct vgx_adding *a, uint32_t graph, const void *ids,
                          uint32_t ids_nbytes);
CUresult vgx_adding_end(struct vgx_session *s, struct vgx_adding *a, uint32_t graph, uint32_t node, CUresult result);

/* Add a node by `call`, which names the driver's function, its dependencies being `a.made, a.graph, ...`. */
#define VGX_ADD(s, req, ids, call)                                                                                     \
  do {                                                                                                                 \
    struct vgx_adding a;                                                                                               \
    CUresult begun = vgx_adding_begin(s, &a, (req)->hGraph, ids, (req)->dependencies_nbytes);                          \
    if (begun != CUDA_SUCCESS)                                                                                         \
      return begun;                                                                                                    \
    return vgx_adding_end(s, &a, (req)->hGraph, (req)->node, call);                                                    \
  } while (0)
#define VGX_PLACE &a.made, a.graph, a.dependencies, a.count

/* A live graph. */
CUresult vgx_graph_of(struct vgx_session *s, uint32_t id, CUgraph *graph);

/* A node that is to change, and the executable graph in which it is to change. */
CUresult vgx_node_of(struct vgx_session *s, uint32_t id, CUgraphNode *node);
CUresult vgx_node_in_exec(struct vgx_session *s, uint32_t exec_id, uint32_t node_id, CUgraphExec *exec,
                          CUgraphNode *node);

/* Note that a node, or the graph inside a node, belongs to a graph; false: out of memory. */
bool vgx_graph_note(struct vgx_session *s, const struct vgx_graph_part *part);

#endif
