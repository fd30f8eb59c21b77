/* Nodes that allocate and free memory; see vgx_sim_graph_memory.c. */
#include "vgx_sim_graph.h"
#include "vgx_sim_graph_memory.h"
#include "vgx_sim_runtime.h"

enum { LOCATION_DEVICE = 1, ALLOCATION_PINNED = 1 };

/* The manual: nodes of memory cannot be added to the graph inside a child graph's node. */
static bool is_child(CUgraph graph) {
  vgx_sim_lock();
  bool child = vgx_sim_is_graph(graph) && graph->owner && graph->owner->child == graph;
  vgx_sim_unlock();
  return child;
}

CUresult vgx_sim_cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                        size_t numDependencies, CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams) {
  CUcontext ctx;
  struct vgx_sim_op *op;
  CUresult result = vgx_sim_enter(&ctx);
  if (result != CUDA_SUCCESS)
    return result;
  if (!nodeParams || !nodeParams->bytesize || nodeParams->poolProps.allocType != ALLOCATION_PINNED ||
      nodeParams->accessDescCount > VGX_SIM_GRAPH_ACCESS_MAX ||
      (nodeParams->accessDescCount && !nodeParams->accessDescs))
    return CUDA_ERROR_INVALID_VALUE;
  if (nodeParams->poolProps.handleTypes || nodeParams->poolProps.location.type != LOCATION_DEVICE || is_child(hGraph))
    return CUDA_ERROR_NOT_SUPPORTED;
  struct vgx_sim_device *device = vgx_sim_device_at(nodeParams->poolProps.location.id);
  if (!device)
    return CUDA_ERROR_INVALID_DEVICE;
  result = vgx_sim_graph_memory_create(device, nodeParams, &op);
  if (result != CUDA_SUCCESS)
    return result;
  CUdeviceptr address = vgx_sim_graph_memory_params(op)->dptr;
  result = vgx_sim_graph_add(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_MEM_ALLOC, ctx, op);
  if (result == CUDA_SUCCESS)
    nodeParams->dptr = address;
  return result;
}

CUresult vgx_sim_cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS *params_out) {
  if (!vgx_sim_node_does(hNode, CU_GRAPH_NODE_TYPE_MEM_ALLOC) || !params_out)
    return CUDA_ERROR_INVALID_VALUE;
  *params_out = *vgx_sim_graph_memory_params(hNode->work->op);
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuGraphAddMemFreeNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                       size_t numDependencies, CUdeviceptr dptr) {
  CUcontext ctx;
  struct vgx_sim_op *op;
  CUresult result = vgx_sim_enter(&ctx);
  if (result == CUDA_SUCCESS)
    result = is_child(hGraph) ? CUDA_ERROR_NOT_SUPPORTED : vgx_sim_graph_memory_release(dptr, true, &op);
  if (result != CUDA_SUCCESS)
    return result;
  if (!op)
    return CUDA_ERROR_INVALID_VALUE;
  return vgx_sim_graph_add(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_MEM_FREE, ctx, op);
}

CUresult vgx_sim_cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr *dptr_out) {
  if (!vgx_sim_node_does(hNode, CU_GRAPH_NODE_TYPE_MEM_FREE) || !dptr_out)
    return CUDA_ERROR_INVALID_VALUE;
  *dptr_out = vgx_sim_graph_memory_params(hNode->work->op)->dptr;
  return CUDA_SUCCESS;
}
