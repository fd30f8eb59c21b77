/* Nodes that record events and wait for them. Locking: the runtime lock. */
#include "vgx_sim_event.h"
#include "vgx_sim_graph.h"
#include "vgx_sim_graph_update.h"

static CUresult add(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, size_t count, CUevent event,
                    bool record) {
  struct vgx_sim_op *op;
  CUresult result = vgx_sim_event_op(event, record, &op);
  return result == CUDA_SUCCESS ? vgx_sim_graph_add(made, graph, dependencies, count, (uint32_t)op->kind - 1, NULL, op)
                                : result;
}

static CUresult get(CUgraphNode node, uint32_t type, CUevent *event) {
  if (!vgx_sim_node_does(node, type) || !event)
    return CUDA_ERROR_INVALID_VALUE;
  *event = vgx_sim_event_of(node->work->op);
  return CUDA_SUCCESS;
}

static CUresult set(CUgraphNode node, bool record, CUevent event) {
  struct vgx_sim_op *op;
  CUresult result = vgx_sim_event_op(event, record, &op);
  return result == CUDA_SUCCESS ? vgx_sim_node_change(node, (uint32_t)op->kind - 1, NULL, op) : result;
}

static CUresult set_later(CUgraphExec exec, CUgraphNode node, bool record, CUevent event) {
  struct vgx_sim_op *op;
  CUresult result = vgx_sim_event_op(event, record, &op);
  return result == CUDA_SUCCESS ? vgx_sim_exec_replace(exec, node, (uint32_t)op->kind - 1, NULL, op) : result;
}

CUresult vgx_sim_cuGraphAddEventRecordNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                           size_t numDependencies, CUevent event) {
  return add(phGraphNode, hGraph, dependencies, numDependencies, event, true);
}

CUresult vgx_sim_cuGraphAddEventWaitNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                         size_t numDependencies, CUevent event) {
  return add(phGraphNode, hGraph, dependencies, numDependencies, event, false);
}

CUresult vgx_sim_cuGraphEventRecordNodeGetEvent(CUgraphNode hNode, CUevent *event_out) {
  return get(hNode, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event_out);
}

CUresult vgx_sim_cuGraphEventWaitNodeGetEvent(CUgraphNode hNode, CUevent *event_out) {
  return get(hNode, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event_out);
}

CUresult vgx_sim_cuGraphEventRecordNodeSetEvent(CUgraphNode hNode, CUevent event) { return set(hNode, true, event); }

CUresult vgx_sim_cuGraphEventWaitNodeSetEvent(CUgraphNode hNode, CUevent event) { return set(hNode, false, event); }

CUresult vgx_sim_cuGraphExecEventRecordNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event) {
  return set_later(hGraphExec, hNode, true, event);
}

CUresult vgx_sim_cuGraphExecEventWaitNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event) {
  return set_later(hGraphExec, hNode, false, event);
}
