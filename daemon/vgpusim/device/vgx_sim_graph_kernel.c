/* Attributes of kernel nodes. Two change how a kernel runs and belong to its launch: cooperative and the dimensions of
 * clusters. The others are stored. Locking: the runtime lock. */
#include <string.h>

#include "vgx_sim_graph_attribute.h"
#include "vgx_sim_launch.h"
#include "vgx_sim_stream_attribute.h"

/* Replace the node's launch by one of the same kernel and parameters with the attributes `how`. */
static CUresult change(CUgraphNode node, const struct vgx_sim_launch_form *how) {
  CUDA_KERNEL_NODE_PARAMS_v2 p;
  struct vgx_sim_op *op;
  CUcontext ctx = node->work->ctx;
  vgx_sim_launch_params(node->work->op, &p);
  CUresult result = vgx_sim_launch_create_as(
      ctx, p.func ? p.func : (CUfunction)p.kern, (uint32_t[]){p.gridDimX, p.gridDimY, p.gridDimZ},
      (uint32_t[]){p.blockDimX, p.blockDimY, p.blockDimZ}, p.sharedMemBytes, NULL, p.extra, how, &op);
  return result == CUDA_SUCCESS ? vgx_sim_node_change(node, VGX_SIM_NODE_KERNEL, ctx, op) : result;
}

CUresult vgx_sim_cuGraphKernelNodeSetAttribute(CUgraphNode hNode, int attr, const CUlaunchAttributeValue *value) {
  if (!vgx_sim_node_does(hNode, VGX_SIM_NODE_KERNEL) || !value)
    return CUDA_ERROR_INVALID_VALUE;
  struct vgx_sim_launch_form form = vgx_sim_launch_form(hNode->work->op);
  switch (attr) {
  case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    form.cooperative = value->cooperative != 0;
    return change(hNode, &form);
  case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    memcpy(form.cluster, &value->clusterDim, sizeof form.cluster);
    return change(hNode, &form);
  case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
    return CUDA_ERROR_NOT_SUPPORTED;
  default:
    if (!vgx_sim_attribute_is_stored(attr) || !vgx_sim_attribute_is_valid(hNode->work->ctx->device, attr, value))
      return CUDA_ERROR_INVALID_VALUE;
    return vgx_sim_attribute_put(hNode, attr, value);
  }
}

CUresult vgx_sim_cuGraphKernelNodeGetAttribute(CUgraphNode hNode, int attr, CUlaunchAttributeValue *value_out) {
  if (!vgx_sim_node_does(hNode, VGX_SIM_NODE_KERNEL) || !value_out)
    return CUDA_ERROR_INVALID_VALUE;
  struct vgx_sim_launch_form form = vgx_sim_launch_form(hNode->work->op);
  CUlaunchAttributeValue found = {{0}};
  if (attr == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
    found.cooperative = form.cooperative;
  else if (attr == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
    memcpy(&found.clusterDim, form.cluster, sizeof form.cluster);
  else if (vgx_sim_attribute_is_stored(attr))
    found = vgx_sim_attribute_get(hNode, attr);
  else
    return CUDA_ERROR_INVALID_VALUE;
  *value_out = found;
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src) {
  if (!vgx_sim_node_does(dst, VGX_SIM_NODE_KERNEL) || !vgx_sim_node_does(src, VGX_SIM_NODE_KERNEL) ||
      dst->work->ctx != src->work->ctx)
    return CUDA_ERROR_INVALID_VALUE;
  if (dst == src)
    return CUDA_SUCCESS;
  struct vgx_sim_launch_form form = vgx_sim_launch_form(src->work->op);
  CUresult result = change(dst, &form);
  return result == CUDA_SUCCESS ? vgx_sim_attributes_copy(dst, src) : result;
}
