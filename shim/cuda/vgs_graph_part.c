/* Nodes that hold a host function or a graph, and clones of graphs. */
#include "vgs_api.h"
#include "vgs_callback.h"
#include "vgs_graph.h"

struct vgs_graph *vgs_graph_outermost(struct vgs_graph *graph) {
  for (struct vgs_graph *owner; graph->owner && (owner = vgs_graph_find(graph->owner));)
    graph = owner;
  return graph;
}

bool vgs_graph_exec_retire(struct vgs_graph_exec *exec, struct vgs_works *works) {
  if (exec->launched && works->count)
    return vgs_works_retire(works, exec->last, exec->object.context_id);
  vgs_works_clear(works);
  return true;
}

/* --- host functions --- */

/* Work for a node's parameters. */
static CUresult make_work(const CUDA_HOST_NODE_PARAMS *params, struct vgs_work **work) {
  CUresult result = params && params->fn ? vgs_callback_start() : CUDA_ERROR_INVALID_VALUE;
  if (result)
    return result;
  *work = vgs_work_function(params->fn, params->userData);
  return *work ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult vgs_cuGraphAddHostNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                size_t numDependencies, const CUDA_HOST_NODE_PARAMS *nodeParams) {
  struct vgs_adding a;
  struct vgs_work *work;
  CUresult result = make_work(nodeParams, &work);
  if (result)
    return result;
  result = vgs_adding_begin(&a, phGraphNode, hGraph, dependencies, numDependencies);
  if (!result) {
    struct vgs_works none = {0};
    result = vgs_works_keep(&vgs_graph_outermost(a.graph)->works, work, a.node->object.id, &none)
                 ? vgs_send_cuGraphAddHostNode(a.node->object.id, a.graph->object.id, vgs_work_id(work), a.dependencies,
                                               a.count)
                 : CUDA_ERROR_OUT_OF_MEMORY;
    result = vgs_adding_end(&a, phGraphNode, result);
  }
  vgs_work_release(work);
  return result;
}

CUresult vgs_cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS *nodeParams) {
  uint32_t callback;
  struct vgs_graph_node *node = vgs_graph_node_find(hNode);
  if (!node || !nodeParams)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = vgs_send_cuGraphHostNodeGetParams(node->object.id, &callback);
  return result || vgs_work_params(callback, nodeParams) ? result : CUDA_ERROR_INVALID_VALUE;
}

CUresult vgs_cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS *nodeParams) {
  struct vgs_work *work;
  struct vgs_works old = {0};
  struct vgs_graph_node *node = vgs_graph_node_find(hNode);
  struct vgs_graph *graph = node ? vgs_graph_find(node->graph) : NULL;
  CUresult result = graph ? make_work(nodeParams, &work) : CUDA_ERROR_INVALID_VALUE;
  if (result)
    return result;
  result = vgs_send_cuGraphHostNodeSetParams(node->object.id, vgs_work_id(work));
  if (!result && !vgs_works_keep(&vgs_graph_outermost(graph)->works, work, node->object.id, &old))
    return CUDA_ERROR_OUT_OF_MEMORY; /* the work stays, for the node has it */
  vgs_work_release(work);
  vgs_works_clear(&old); /* graphs made executable keep it for themselves */
  return result;
}

CUresult vgs_cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                          const CUDA_HOST_NODE_PARAMS *nodeParams) {
  struct vgs_work *work;
  struct vgs_works old = {0};
  struct vgs_graph_exec *exec = vgs_graph_exec_find(hGraphExec);
  struct vgs_graph_node *node = vgs_graph_node_find(hNode);
  CUresult result = exec && node ? make_work(nodeParams, &work) : CUDA_ERROR_INVALID_VALUE;
  if (result)
    return result;
  result = vgs_send_cuGraphExecHostNodeSetParams(exec->object.id, node->object.id, vgs_work_id(work));
  if (!result && !vgs_works_keep(&exec->works, work, node->object.id, &old))
    return CUDA_ERROR_OUT_OF_MEMORY;
  vgs_work_release(work);
  vgs_graph_exec_retire(exec, &old);
  return result;
}

/* --- graphs inside nodes --- */

CUresult vgs_cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                      size_t numDependencies, CUgraph childGraph) {
  struct vgs_adding a;
  struct vgs_graph *child = vgs_graph_find(childGraph);
  CUresult result =
      child ? vgs_adding_begin(&a, phGraphNode, hGraph, dependencies, numDependencies) : CUDA_ERROR_INVALID_VALUE;
  if (result)
    return result;
  struct vgs_works *works = &vgs_graph_outermost(a.graph)->works, none = {0}, old = {0};
  uint32_t node = a.node->object.id;
  result = vgs_works_keep_child(works, &vgs_graph_outermost(child)->works, node, &none)
               ? vgs_send_cuGraphAddChildGraphNode(node, a.graph->object.id, a.dependencies, a.count, child->object.id)
               : CUDA_ERROR_OUT_OF_MEMORY;
  if (result && vgs_works_keep_child(works, &none, node, &old)) /* a graph added to itself in vain must not grow */
    vgs_works_clear(&old);
  return vgs_adding_end(&a, phGraphNode, result);
}

/* Always the same handle, as the graph is. */
CUresult vgs_cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph *phGraph) {
  struct vgs_graph_node *node = vgs_graph_node_find(hNode);
  if (!node || !phGraph)
    return CUDA_ERROR_INVALID_VALUE;
  if (!node->inside) {
    struct vgs_graph *graph = vgs_object_create(VGW_KIND_GRAPH, 0);
    if (!graph)
      return CUDA_ERROR_OUT_OF_MEMORY;
    graph->unnamed = true;
    graph->owner = node->graph;
    CUresult result = vgs_send_cuGraphChildGraphNodeGetGraph(node->object.id, graph->object.id);
    if (result) {
      vgs_object_destroy(graph);
      return result;
    }
    node->inside = vgs_object_handle(graph);
  }
  *phGraph = node->inside;
  return CUDA_SUCCESS;
}

CUresult vgs_cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraph childGraph) {
  struct vgs_graph_exec *exec = vgs_graph_exec_find(hGraphExec);
  struct vgs_graph_node *node = vgs_graph_node_find(hNode);
  struct vgs_graph *child = vgs_graph_find(childGraph);
  struct vgs_works works = {0}, old = {0};
  if (!exec || !node || !child)
    return CUDA_ERROR_INVALID_VALUE;
  if (!vgs_works_keep_all(&works, &vgs_graph_outermost(child)->works))
    return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = vgs_send_cuGraphExecChildGraphNodeSetParams(exec->object.id, node->object.id, child->object.id);
  if (!result && !vgs_works_keep_child(&exec->works, &works, node->object.id, &old))
    return CUDA_ERROR_OUT_OF_MEMORY; /* they stay, for the node has them */
  vgs_works_clear(&works);
  vgs_graph_exec_retire(exec, &old);
  return result;
}

struct vgs_graph *vgs_graph_create_clone(struct vgs_graph *original) {
  struct vgs_graph *clone = vgs_object_create(VGW_KIND_GRAPH, 0);
  if (!clone)
    return NULL;
  clone->unnamed = true;
  if (vgs_works_keep_all(&clone->works, &vgs_graph_outermost(original)->works))
    return clone;
  vgs_object_destroy(clone);
  return NULL;
}
