/* Kernel nodes: their parameters, checked and packed like a launch's, and kept for the functions that query them. */
#include "vgs_graph_kernel.h"
#include "vgs_api.h"
#include "vgs_graph.h"
#include "vgs_kernel.h"
#include <stdlib.h>
#include <string.h>

CUresult vgs_node_kernel_pack(struct vgs_node_kernel *kernel, const CUDA_KERNEL_NODE_PARAMS_v2 *p) {
  struct vgs_launch *launch = &kernel->launch;
  if (!p)
    return CUDA_ERROR_INVALID_VALUE;
  *launch = (struct vgs_launch){.kernel = vgs_kernel_find(p->func ? (const void *)p->func : (const void *)p->kern),
                                .grid = {p->gridDimX, p->gridDimY, p->gridDimZ},
                                .block = {p->blockDimX, p->blockDimY, p->blockDimZ},
                                .shared_nbytes = p->sharedMemBytes,
                                .params = p->kernelParams,
                                .extra = p->extra};
  if (!launch->kernel)
    return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = vgs_kernel_prepare(launch->kernel);
  if (!result)
    result = vgs_launch_check_shape(launch);
  if (result)
    return result;
  const void *given;
  char *packed = calloc(1, (size_t)launch->kernel->param_nbytes + 1);
  if (!packed)
    return CUDA_ERROR_OUT_OF_MEMORY;
  result = vgs_launch_pack_params(launch, packed, &given);
  if (result) {
    free(packed);
    return result;
  }
  if (given != packed)
    memcpy(packed, given, launch->kernel->param_nbytes);
  kernel->block = packed;
  return CUDA_SUCCESS;
}

void vgs_node_kernel_fini(struct vgs_node_kernel *kernel) { free(kernel->block); }

/* The parameters that cuGraphKernelNodeGetParams returns, pointing into a copy that belongs to the node. Takes
 * ownership of `block`. */
static void keep(struct vgs_graph_node *node, const CUDA_KERNEL_NODE_PARAMS_v2 *p, const struct vgs_kernel *kernel,
                 char *block) {
  void **pointers = malloc((kernel->param_count + 1) * sizeof *pointers);
  if (!pointers) { /* out of memory: the node is correct, but its parameters cannot be returned */
    free(block);
    block = NULL;
  }
  for (uint32_t i = 0; pointers && i < kernel->param_count; i++)
    pointers[i] = block + kernel->params[i].offset;
  free(node->block);
  free(node->pointers);
  node->block = block;
  node->pointers = pointers;
  node->params = *p;
  node->params.kernelParams = pointers;
  node->params.extra = NULL;
}

void vgs_node_kernel_set(struct vgs_graph_node *node, const CUDA_KERNEL_NODE_PARAMS_v2 *p,
                         struct vgs_node_kernel *kernel) {
  keep(node, p, kernel->launch.kernel, kernel->block);
  kernel->block = NULL;
}

/* The parameters of a captured node, fetched from the worker and kept as if the program had passed them. */
static CUresult fetch_params(struct vgs_graph_node *node) {
  enum { PARAMS_NBYTES = 32768 };
  CUDA_KERNEL_NODE_PARAMS_v2 p = {0};
  uint32_t kind, object;
  char *block = calloc(1, PARAMS_NBYTES);
  if (!block)
    return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = vgs_send_cuGraphKernelNodeGetParams_v2(node->object.id, &kind, &object, &p.gridDimX, &p.gridDimY,
                                                           &p.gridDimZ, &p.blockDimX, &p.blockDimY, &p.blockDimZ,
                                                           &p.sharedMemBytes, PARAMS_NBYTES, block);
  bool known = !result && (kind == VGW_KIND_FUNCTION || kind == VGW_KIND_KERNEL);
  struct vgs_kernel *kernel = known ? vgs_object_at(kind, object) : NULL;
  if (!result)
    result = kernel ? vgs_kernel_describe(kernel) : CUDA_ERROR_UNKNOWN;
  if (!result && kernel->param_nbytes > PARAMS_NBYTES)
    result = CUDA_ERROR_UNKNOWN;
  if (result) {
    free(block);
    return result;
  }
  if (kind == VGW_KIND_FUNCTION)
    p.func = vgs_object_handle(kernel);
  else
    p.kern = vgs_object_handle(kernel);
  keep(node, &p, kernel, block);
  return node->pointers ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult vgs_cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v2 *nodeParams) {
  struct vgs_graph_node *node = vgs_graph_node_find(hNode);
  if (!node || !nodeParams)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = node->pointers ? CUDA_SUCCESS : fetch_params(node);
  if (!result)
    *nodeParams = node->params;
  return result;
}

/* Runtimes before 12 know only functions: a kernel is accepted wherever a function is. */
CUresult vgs_cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams) {
  CUDA_KERNEL_NODE_PARAMS_v2 wide;
  CUresult result = nodeParams ? vgs_cuGraphKernelNodeGetParams_v2(hNode, &wide) : CUDA_ERROR_INVALID_VALUE;
  if (result)
    return result;
  if (!wide.func)
    wide.func = (CUfunction)wide.kern;
  memcpy(nodeParams, &wide, sizeof *nodeParams);
  return CUDA_SUCCESS;
}

/* The older struct ends before the fields that name a kernel by CUkernel. */
static CUDA_KERNEL_NODE_PARAMS_v2 widen(const CUDA_KERNEL_NODE_PARAMS_v1 *p) {
  CUDA_KERNEL_NODE_PARAMS_v2 wide = {0};
  memcpy(&wide, p, sizeof *p);
  return wide;
}

CUresult vgs_cuGraphAddKernelNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                  size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams) {
  if (!nodeParams)
    return CUDA_ERROR_INVALID_VALUE;
  CUDA_KERNEL_NODE_PARAMS_v2 wide = widen(nodeParams);
  return vgs_cuGraphAddKernelNode_v2(phGraphNode, hGraph, dependencies, numDependencies, &wide);
}

CUresult vgs_cuGraphKernelNodeSetParams(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams) {
  if (!nodeParams)
    return CUDA_ERROR_INVALID_VALUE;
  CUDA_KERNEL_NODE_PARAMS_v2 wide = widen(nodeParams);
  return vgs_cuGraphKernelNodeSetParams_v2(hNode, &wide);
}

CUresult vgs_cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams) {
  if (!nodeParams)
    return CUDA_ERROR_INVALID_VALUE;
  CUDA_KERNEL_NODE_PARAMS_v2 wide = widen(nodeParams);
  return vgs_cuGraphExecKernelNodeSetParams_v2(hGraphExec, hNode, &wide);
}
