/* Graphs as a whole; their nodes: vgs_graph_node.c; captures: vgs_graph_capture.c. */
#include "vgs_graph.h"
#include "vgs_api.h"
#include "vgs_callback.h"
#include "vgs_capture.h"
#include "vgs_enter.h"
#include "vgs_graph_node.h"
#include "vgs_graph_part.h"
#include "vgs_log.h"
#include "vgs_stream.h"
#include <string.h>

static void forget_inside(CUgraph handle) {
  struct vgs_graph *graph = handle ? vgs_graph_find(handle) : NULL;
  if (!graph)
    return;
  vgs_graph_destroy_parts(graph);
  vgs_object_destroy(graph);
}

void vgs_graph_destroy_inside(struct vgs_graph_node *node) {
  forget_inside(node->inside);
  for (uint32_t i = 0; i < node->body_count; i++)
    forget_inside(node->bodies[i]);
}

void vgs_graph_destroy_parts(struct vgs_graph *graph) {
  for (uint32_t i = 0; i < graph->count; i++) {
    struct vgs_graph_node *node = vgs_graph_node_find(graph->nodes[i]);
    if (!node)
      continue;
    vgs_graph_destroy_inside(node);
    vgs_object_destroy(node);
  }
}

/* The driver refuses this for graphs with nodes of memory: then the graphs inside the node keep their handles, too. */
CUresult vgs_cuGraphDestroyNode(CUgraphNode hNode) {
  struct vgs_graph_node *node = vgs_graph_node_find(hNode);
  CUresult result = node ? vgs_send_cuGraphDestroyNode(node->object.id) : CUDA_ERROR_INVALID_VALUE;
  if (result)
    return result;
  struct vgs_graph *of = vgs_graph_find(node->graph);
  uint32_t at = 0;
  while (of && at < of->count && of->nodes[at] != hNode)
    at++;
  if (of && at < of->count)
    memmove(&of->nodes[at], &of->nodes[at + 1], (--of->count - at) * sizeof *of->nodes);
  vgs_graph_destroy_inside(node);
  vgs_object_destroy(node);
  return CUDA_SUCCESS;
}

struct vgs_graph_exec *vgs_graph_exec_create(struct vgs_graph *graph) {
  struct vgs_graph_exec *exec = vgs_object_create(VGW_KIND_GRAPH_EXEC, vgs_context_entered->wire_id);
  if (!exec || vgs_works_add_all(&exec->works, &vgs_graph_outermost(graph)->works))
    return exec;
  vgs_object_destroy(exec);
  return NULL;
}

void vgs_graph_exec_end(struct vgs_graph_exec *exec) {
  bool launched = exec->launched;
  if (vgs_graph_exec_clear_works(exec, &exec->works) && launched)
    vgs_callback_in_graph(-1);
}

CUresult vgs_cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer,
                                   size_t bufferSize) {
  CUresult result = vgs_cuGraphInstantiateWithFlags(phGraphExec, hGraph, 0);
  if (!result && phErrorNode)
    *phErrorNode = NULL;
  if (!result && logBuffer && bufferSize)
    *logBuffer = 0;
  return result;
}

/* CUDA_GRAPH_INSTANTIATE_PARAMS */
struct instantiate_params {
  uint64_t flags;
  CUstream upload_stream;
  CUgraphNode error_node;
  int result;
};

CUresult vgs_cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph, void *instantiateParams) {
  enum { FLAG_UPLOAD = 2, INSTANTIATE_ERROR = 1 };
  struct instantiate_params *params = instantiateParams;
  CUgraphExec made;
  if (!params || !phGraphExec)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = vgs_cuGraphInstantiateWithFlags(&made, hGraph, params->flags & ~(uint64_t)FLAG_UPLOAD);
  if (!result && params->flags & FLAG_UPLOAD && (result = vgs_cuGraphUpload(made, params->upload_stream)))
    vgs_cuGraphExecDestroy(made);
  if (!result)
    *phGraphExec = made;
  params->error_node = NULL;
  params->result = result ? INSTANTIATE_ERROR : 0; /* also after a failure, says the manual */
  return result;
}

bool vgs_graph_exec_launch(struct vgs_graph_exec *exec, const struct vgs_stream *on, bool captured) {
  if (captured)
    return vgs_capture_add_works(on->capture, &exec->works);
  if (exec->works.count) {
    exec->last = on ? vgs_object_handle(on) : NULL;
    if (!exec->launched)
      vgs_callback_in_graph(1);
    exec->launched = true;
  }
  return true;
}

CUresult vgs_graph_exec_updated(struct vgs_graph_exec *exec, struct vgs_works *works, int error, int reason,
                                CUgraphExecUpdateResultInfo *info) {
  if (!error) {
    vgs_graph_exec_clear_works(exec, &exec->works);
    exec->works = *works;
    *works = (struct vgs_works){0};
  }
  *info = (CUgraphExecUpdateResultInfo){.result = reason};
  return (CUresult)error;
}

void vgs_graph_exec_not_updated(struct vgs_graph *graph, uint32_t node, uint32_t from,
                                CUgraphExecUpdateResultInfo *info) {
  if (!node || vgs_graph_name_nodes(graph)) /* without handles the node stays NULL */
    return;
  info->errorNode = node <= graph->count ? graph->nodes[node - 1] : NULL;
  info->errorFromNode = from && from <= graph->count ? graph->nodes[from - 1] : NULL;
}

CUresult vgs_cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
                               int *updateResult_out) {
  CUgraphExecUpdateResultInfo info = {.result = CU_GRAPH_EXEC_UPDATE_ERROR};
  if (!updateResult_out)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = vgs_cuGraphExecUpdate_v2(hGraphExec, hGraph, &info);
  if (!result || result == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE) {
    *updateResult_out = info.result;
    if (hErrorNode_out)
      *hErrorNode_out = info.errorNode;
  }
  return result;
}
