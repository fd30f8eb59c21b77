/* Nodes with work, added one by one. Locking: the runtime lock; see vgx_sim_graph.h. */
#include "vgx_sim_graph_node.h"

#include "vgx_sim_copy.h"
#include "vgx_sim_graph.h"
#include "vgx_sim_launch.h"
#include "vgx_sim_runtime.h"
#include "vgx_sim_set.h"

/* The context a node's work is for: the given one, else the thread's. */
static CUresult enter(CUcontext given, CUcontext *ctx) {
  if (!given)
    return vgx_sim_enter(ctx);
  *ctx = given;
  return vgx_sim_check(given);
}

CUresult vgx_sim_kernel_op(const CUDA_KERNEL_NODE_PARAMS_v2 *p, const struct vgx_sim_work *old, CUcontext *ctx,
                           struct vgx_sim_op **op) {
  if (!p)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = enter(p->func ? NULL : p->ctx, ctx);
  if (result != CUDA_SUCCESS)
    return result;
  struct vgx_sim_launch_form form = {0};
  if (old)
    form = vgx_sim_launch_form(old->op);
  return vgx_sim_launch_create_as(
      *ctx, p->func ? p->func : (CUfunction)p->kern, (uint32_t[]){p->gridDimX, p->gridDimY, p->gridDimZ},
      (uint32_t[]){p->blockDimX, p->blockDimY, p->blockDimZ}, p->sharedMemBytes, p->kernelParams, p->extra, &form, op);
}

CUresult vgx_sim_memcpy_op(const CUDA_MEMCPY3D *p, CUcontext given, CUcontext *ctx, struct vgx_sim_op **op) {
  CUresult result = enter(given, ctx);
  return result == CUDA_SUCCESS ? vgx_sim_copy_create(*ctx, p, op) : result;
}

CUresult vgx_sim_memset_op(const CUDA_MEMSET_NODE_PARAMS *p, CUcontext given, CUcontext *ctx, struct vgx_sim_op **op) {
  CUresult result = enter(given, ctx);
  return result == CUDA_SUCCESS ? vgx_sim_fill_create(p, op) : result;
}

CUresult vgx_sim_cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                         size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS_v2 *nodeParams) {
  CUcontext ctx;
  struct vgx_sim_op *op;
  CUresult result = vgx_sim_kernel_op(nodeParams, NULL, &ctx, &op);
  return result == CUDA_SUCCESS
             ? vgx_sim_graph_add(phGraphNode, hGraph, dependencies, numDependencies, VGX_SIM_NODE_KERNEL, ctx, op)
             : result;
}

CUresult vgx_sim_cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                      size_t numDependencies, const CUDA_MEMCPY3D *copyParams, CUcontext given) {
  CUcontext ctx;
  struct vgx_sim_op *op;
  CUresult result = vgx_sim_memcpy_op(copyParams, given, &ctx, &op);
  return result == CUDA_SUCCESS
             ? vgx_sim_graph_add(phGraphNode, hGraph, dependencies, numDependencies, VGX_SIM_NODE_MEMCPY, ctx, op)
             : result;
}

CUresult vgx_sim_cuGraphAddMemsetNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                      size_t numDependencies, const CUDA_MEMSET_NODE_PARAMS *memsetParams,
                                      CUcontext given) {
  CUcontext ctx;
  struct vgx_sim_op *op;
  CUresult result = vgx_sim_memset_op(memsetParams, given, &ctx, &op);
  return result == CUDA_SUCCESS
             ? vgx_sim_graph_add(phGraphNode, hGraph, dependencies, numDependencies, VGX_SIM_NODE_MEMSET, ctx, op)
             : result;
}

CUresult vgx_sim_cuGraphAddEmptyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                     size_t numDependencies) {
  return vgx_sim_graph_add(phGraphNode, hGraph, dependencies, numDependencies, VGX_SIM_NODE_EMPTY, NULL, NULL);
}

CUresult vgx_sim_cuGraphAddExternalSemaphoresSignalNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                                        const CUgraphNode *dependencies, size_t numDependencies,
                                                        const CUDA_EXT_SEM_NODE_PARAMS *nodeParams) {
  return nodeParams->numExtSems ? CUDA_ERROR_INVALID_VALUE
                                : vgx_sim_graph_add(phGraphNode, hGraph, dependencies, numDependencies,
                                                    CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL, NULL, NULL);
}

CUresult vgx_sim_cuGraphAddExternalSemaphoresWaitNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                                      const CUgraphNode *dependencies, size_t numDependencies,
                                                      const CUDA_EXT_SEM_NODE_PARAMS *nodeParams) {
  return nodeParams->numExtSems ? CUDA_ERROR_INVALID_VALUE
                                : vgx_sim_graph_add(phGraphNode, hGraph, dependencies, numDependencies,
                                                    CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT, NULL, NULL);
}

CUresult vgx_sim_cuGraphKernelNodeSetParams_v2(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v2 *nodeParams) {
  CUcontext ctx;
  struct vgx_sim_op *op;
  if (!vgx_sim_is_node(hNode) || hNode->type != VGX_SIM_NODE_KERNEL)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = vgx_sim_kernel_op(nodeParams, hNode->work, &ctx, &op);
  return result == CUDA_SUCCESS ? vgx_sim_node_change(hNode, VGX_SIM_NODE_KERNEL, ctx, op) : result;
}
