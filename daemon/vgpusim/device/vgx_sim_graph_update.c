/* Updates of executable graphs: other parameters for one node, or those of another graph for all. Each replaces the
 * graph's plan; queued launches keep the old one. Locking: the runtime lock. */
#include <stdlib.h>
#include <string.h>

#include "vgx_sim_copy.h"
#include "vgx_sim_graph.h"
#include "vgx_sim_graph_condition.h"
#include "vgx_sim_graph_node.h"
#include "vgx_sim_graph_update.h"
#include "vgx_sim_launch.h"
#include "vgx_sim_runtime.h"
#include "vgx_sim_set.h"
#include "vgx_sim_stream.h"

/* Whether two copies are between the same types of memory: an array's, or any other. */
static bool copies_alike(const struct vgx_sim_op *op, const struct vgx_sim_op *other) {
  CUDA_MEMCPY3D a, b;
  vgx_sim_copy_params(op, &a);
  vgx_sim_copy_params(other, &b);
  return a.srcMemoryType == b.srcMemoryType && a.dstMemoryType == b.dstMemoryType;
}

/* Whether a step's work may stand in for another's of the same type. */
static int compare_work(CUcontext ctx, const struct vgx_sim_step *old, const struct vgx_sim_step *new) {
  const struct vgx_sim_op *a = old->work ? old->work->op : NULL, *b = new->work ? new->work->op : NULL;
  CUDA_MEMSET_NODE_PARAMS fill, other;
  if (!a || !b)
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
  bool same = !vgx_sim_is_foreign(new, ctx);
  switch (new->type) {
  case VGX_SIM_NODE_KERNEL:
    if (!same)
      return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
    return vgx_sim_launch_form(a).cooperative == vgx_sim_launch_form(b).cooperative
               ? CU_GRAPH_EXEC_UPDATE_SUCCESS
               : CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
  case VGX_SIM_NODE_MEMCPY:
    same &= copies_alike(a, b);
    break;
  case VGX_SIM_NODE_MEMSET:
    vgx_sim_fill_params(a, &fill);
    vgx_sim_fill_params(b, &other);
    same &= (fill.height <= 1 && other.height <= 1) ||
            (fill.width == other.width && fill.height == other.height && fill.elementSize == other.elementSize);
    break;
  case CU_GRAPH_NODE_TYPE_CONDITIONAL:
    same &= vgx_sim_condition_is_like(a, b);
    break;
  default:
    break;
  }
  return same ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
}

/* Whether `count` steps may stand in for old ones: the same kinds of nodes in the same places, for the same context.
 * *at: the first that may not. */
static int compare(CUcontext ctx, const struct vgx_sim_step *old, const struct vgx_sim_step *new, uint32_t count,
                   uint32_t *at) {
  int reason = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  for (*at = 0; *at < count; ++*at, ++old, ++new) {
    if (old->place != new->place)
      return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    if (old->type != new->type)
      return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    if ((reason = compare_work(ctx, old, new)) != CU_GRAPH_EXEC_UPDATE_SUCCESS)
      return reason;
    if (old->inside != new->inside)
      return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  }
  return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

/* The number of nodes directly in the graph of a plan. */
static uint32_t outer_count(const struct vgx_sim_plan *plan) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < plan->count; i += plan->steps[i].inside + 1)
    count++;
  return count;
}

/* Likewise for whole plans. *node: the serial number of the node that does not fit; 0: none. */
static int compare_plans(CUcontext ctx, const struct vgx_sim_plan *old, const struct vgx_sim_plan *new,
                         uint64_t *node) {
  uint32_t count = old->count < new->count ? old->count : new->count, at;
  *node = 0;
  if (outer_count(old) != outer_count(new))
    return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  int reason = compare(ctx, old->steps, new->steps, count, &at);
  if (reason == CU_GRAPH_EXEC_UPDATE_SUCCESS && old->count != new->count)
    reason = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  else if (reason != CU_GRAPH_EXEC_UPDATE_SUCCESS)
    *node = new->steps[at].serial;
  return reason;
}

static CUgraphNode find_node_locked(CUgraph graph, uint64_t serial) {
  for (uint32_t i = 0; serial && i < graph->count; i++)
    if (graph->nodes[i]->serial == serial)
      return graph->nodes[i];
  return NULL; /* in a graph inside this one */
}

CUresult vgx_sim_cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo *resultInfo) {
  CUcontext ctx;
  CUresult result = vgx_sim_enter(&ctx);
  if (result != CUDA_SUCCESS)
    return result;
  if (!vgx_sim_is_exec(hGraphExec) || !hGraph || hGraph->magic != VGX_SIM_GRAPH || !resultInfo)
    return CUDA_ERROR_INVALID_VALUE;
  struct vgx_sim_plan *plan = NULL;
  int reason = CU_GRAPH_EXEC_UPDATE_ERROR;
  CUgraphNode error_node = NULL;
  vgx_sim_lock();
  result = hGraph->moved ? CUDA_ERROR_INVALID_VALUE : vgx_sim_plan_create_locked(hGraph, &plan);
  if (result == CUDA_SUCCESS) {
    struct vgx_sim_plan *old = hGraphExec->plan;
    uint64_t serial;
    reason = compare_plans(hGraphExec->ctx, old, plan, &serial);
    error_node = find_node_locked(hGraph, serial);
    for (uint32_t i = 0; reason == CU_GRAPH_EXEC_UPDATE_SUCCESS && i < plan->count; i++) {
      plan->steps[i].serial = old->steps[i].serial; /* later updates name a step by the node that it was made from */
      plan->steps[i].disabled = old->steps[i].disabled;
    }
    if (reason == CU_GRAPH_EXEC_UPDATE_SUCCESS) {
      hGraphExec->plan = plan;
      plan = old;
    } else {
      result = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
  }
  vgx_sim_unlock();
  if (plan)
    vgx_sim_plan_unref(plan);
  *resultInfo = (CUgraphExecUpdateResultInfo){.result = reason, .errorNode = error_node};
  return result;
}

/* Copy a plan; the caller adds the references to the steps' work. NULL: out of memory. */
static struct vgx_sim_plan *copy_plan(const struct vgx_sim_plan *plan) {
  size_t nbytes = sizeof *plan + plan->count * sizeof plan->steps[0];
  struct vgx_sim_plan *copy = malloc(nbytes);
  if (copy) {
    memcpy(copy, plan, nbytes);
    copy->refs = 1;
  }
  return copy;
}

CUresult vgx_sim_exec_replace(CUgraphExec exec, CUgraphNode node, uint32_t type, CUcontext ctx, struct vgx_sim_op *op) {
  struct vgx_sim_work *work = vgx_sim_work_create(ctx, op);
  if (!work)
    return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  struct vgx_sim_plan *old = NULL;
  vgx_sim_lock();
  if (vgx_sim_is_exec(exec) && vgx_sim_is_node(node) && node->type == type && (!ctx || exec->ctx == ctx)) {
    struct vgx_sim_plan *plan = copy_plan(exec->plan);
    result = plan ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
    if (plan) {
      for (uint32_t i = 0; i < plan->count; i++) {
        struct vgx_sim_step *step = &plan->steps[i];
        if (step->serial == node->serial) {
          step->work = work;
          result = CUDA_SUCCESS;
        } else if (step->work) {
          step->work->refs++;
        }
      }
      old = plan;
      if (result == CUDA_SUCCESS) {
        old = exec->plan;
        exec->plan = plan;
      }
    }
  }
  vgx_sim_unlock();
  if (old)
    vgx_sim_plan_unref(old);
  if (result != CUDA_SUCCESS)
    vgx_sim_work_unref(work);
  return result;
}

/* The step of a node in the plan of later launches; NULL: none. */
static struct vgx_sim_step *step_of(CUgraphExec exec, CUgraphNode node) {
  if (!vgx_sim_is_exec(exec) || !vgx_sim_is_node(node))
    return NULL;
  struct vgx_sim_plan *plan = exec->plan;
  for (uint32_t i = 0; i < plan->count; i++)
    if (plan->steps[i].serial == node->serial)
      return &plan->steps[i];
  return NULL;
}

static bool can_be_disabled(uint32_t type) {
  return type == VGX_SIM_NODE_KERNEL || type == VGX_SIM_NODE_MEMCPY || type == VGX_SIM_NODE_MEMSET;
}

CUresult vgx_sim_cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled) {
  const struct vgx_sim_step *step = step_of(hGraphExec, hNode);
  if (!step || !can_be_disabled(step->type))
    return CUDA_ERROR_INVALID_VALUE;
  if (step->disabled == !isEnabled)
    return CUDA_SUCCESS;
  vgx_sim_lock();
  struct vgx_sim_plan *old = hGraphExec->plan, *plan = copy_plan(old);
  for (uint32_t i = 0; plan && i < plan->count; i++)
    if (plan->steps[i].work)
      plan->steps[i].work->refs++;
  if (plan) {
    plan->steps[step - old->steps].disabled = !isEnabled;
    hGraphExec->plan = plan;
  }
  vgx_sim_unlock();
  if (!plan)
    return CUDA_ERROR_OUT_OF_MEMORY;
  vgx_sim_plan_unref(old);
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int *isEnabled) {
  const struct vgx_sim_step *step = step_of(hGraphExec, hNode);
  if (!step || !can_be_disabled(step->type) || !isEnabled)
    return CUDA_ERROR_INVALID_VALUE;
  *isEnabled = !step->disabled;
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                   const CUDA_KERNEL_NODE_PARAMS_v2 *nodeParams) {
  CUcontext ctx;
  struct vgx_sim_op *op;
  const struct vgx_sim_step *step = step_of(hGraphExec, hNode);
  if (!step || step->type != VGX_SIM_NODE_KERNEL)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = vgx_sim_kernel_op(nodeParams, step->work, &ctx, &op);
  return result == CUDA_SUCCESS ? vgx_sim_exec_replace(hGraphExec, hNode, VGX_SIM_NODE_KERNEL, ctx, op) : result;
}

CUresult vgx_sim_cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                const CUDA_MEMCPY3D *copyParams, CUcontext given) {
  CUcontext ctx;
  struct vgx_sim_op *op;
  const struct vgx_sim_step *step = step_of(hGraphExec, hNode);
  CUresult result = vgx_sim_memcpy_op(copyParams, given, &ctx, &op);
  if (result != CUDA_SUCCESS)
    return result;
  if (step && step->type == VGX_SIM_NODE_MEMCPY && !copies_alike(step->work->op, op)) {
    op->destroy(op);
    return CUDA_ERROR_INVALID_VALUE;
  }
  return vgx_sim_exec_replace(hGraphExec, hNode, VGX_SIM_NODE_MEMCPY, ctx, op);
}

CUresult vgx_sim_cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext given) {
  CUcontext ctx;
  struct vgx_sim_op *op;
  CUresult result = vgx_sim_memset_op(memsetParams, given, &ctx, &op);
  return result == CUDA_SUCCESS ? vgx_sim_exec_replace(hGraphExec, hNode, VGX_SIM_NODE_MEMSET, ctx, op) : result;
}

CUresult vgx_sim_cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                              const CUDA_HOST_NODE_PARAMS *nodeParams) {
  struct vgx_sim_op *op;
  CUresult result = vgx_sim_host_create(nodeParams, &op);
  return result == CUDA_SUCCESS ? vgx_sim_exec_replace(hGraphExec, hNode, VGX_SIM_NODE_HOST, NULL, op) : result;
}

/* In later launches the work of `child`'s steps replaces that of `exec`'s steps from `first` on. */
static CUresult replace_inside_locked(CUgraphExec exec, uint32_t first, const struct vgx_sim_plan *child,
                                      struct vgx_sim_plan **old) {
  uint32_t at;
  if (compare(exec->ctx, &exec->plan->steps[first], child->steps, child->count, &at) != CU_GRAPH_EXEC_UPDATE_SUCCESS)
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  struct vgx_sim_plan *plan = copy_plan(exec->plan);
  if (!plan)
    return CUDA_ERROR_OUT_OF_MEMORY;
  for (uint32_t i = 0; i < child->count; i++)
    plan->steps[first + i].work = child->steps[i].work;
  for (uint32_t i = 0; i < plan->count; i++)
    if (plan->steps[i].work)
      plan->steps[i].work->refs++;
  *old = exec->plan;
  exec->plan = plan;
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraph childGraph) {
  struct vgx_sim_plan *child = NULL, *old = NULL;
  if (!vgx_sim_is_exec(hGraphExec) || !vgx_sim_is_node(hNode) || !vgx_sim_is_graph(childGraph))
    return CUDA_ERROR_INVALID_VALUE;
  vgx_sim_lock();
  const struct vgx_sim_plan *plan = hGraphExec->plan;
  uint32_t i = 0;
  while (i < plan->count && plan->steps[i].serial != hNode->serial)
    i++;
  CUresult result = i < plan->count && plan->steps[i].type == VGX_SIM_NODE_GRAPH
                        ? vgx_sim_plan_create_locked(childGraph, &child)
                        : CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS && child->count != plan->steps[i].inside)
    result = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  if (result == CUDA_SUCCESS)
    result = replace_inside_locked(hGraphExec, i + 1, child, &old);
  vgx_sim_unlock();
  if (child)
    vgx_sim_plan_unref(child);
  if (old)
    vgx_sim_plan_unref(old);
  return result;
}
