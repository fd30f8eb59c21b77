/* Nodes of operations on words of memory. Locking: the runtime lock. */
#include "vgx_sim_graph.h"
#include "vgx_sim_graph_update.h"
#include "vgx_sim_runtime.h"
#include "vgx_sim_word.h"

/* The work of a node with these parameters. */
static CUresult create(const CUDA_BATCH_MEM_OP_NODE_PARAMS *p, CUcontext *ctx, struct vgx_sim_op **op) {
  if (!p || !p->count || !p->paramArray || p->flags)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = p->ctx ? vgx_sim_check(p->ctx) : vgx_sim_enter(ctx);
  if (p->ctx)
    *ctx = p->ctx;
  return result == CUDA_SUCCESS ? vgx_sim_words_create(p->paramArray, p->count, op) : result;
}

CUresult vgx_sim_cuGraphAddBatchMemOpNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                          size_t numDependencies, const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams) {
  CUcontext ctx;
  struct vgx_sim_op *op;
  CUresult result = create(nodeParams, &ctx, &op);
  return result == CUDA_SUCCESS ? vgx_sim_graph_add(phGraphNode, hGraph, dependencies, numDependencies,
                                                    CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, ctx, op)
                                : result;
}

CUresult vgx_sim_cuGraphBatchMemOpNodeGetParams(CUgraphNode hNode, CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams_out) {
  if (!vgx_sim_is_node(hNode) || hNode->type != CU_GRAPH_NODE_TYPE_BATCH_MEM_OP || !nodeParams_out)
    return CUDA_ERROR_INVALID_VALUE;
  CUDA_BATCH_MEM_OP_NODE_PARAMS found = {.ctx = hNode->work->ctx};
  found.count = vgx_sim_words_of(hNode->work->op, &found.paramArray);
  *nodeParams_out = found;
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuGraphBatchMemOpNodeSetParams(CUgraphNode hNode, const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams) {
  CUcontext ctx;
  struct vgx_sim_op *op;
  CUresult result = create(nodeParams, &ctx, &op);
  return result == CUDA_SUCCESS ? vgx_sim_node_change(hNode, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, ctx, op) : result;
}

CUresult vgx_sim_cuGraphExecBatchMemOpNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                    const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams) {
  CUcontext ctx;
  struct vgx_sim_op *op;
  CUresult result = create(nodeParams, &ctx, &op);
  return result == CUDA_SUCCESS ? vgx_sim_exec_replace(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, ctx, op)
                                : result;
}
