/* Graph nodes whose parameters differ between runtime and driver: kernels by host function, copies without memory
 * types, and a context that the runtime leaves out. */
#include "vgs_rt.h"
#include "vgs_rt_api.h"
#include "vgs_rt_copy.h"
#include "vgs_rt_registry.h"

/* CUDA_KERNEL_NODE_PARAMS_v2: public ABI. */
struct kernel_node {
  CUfunction function;
  unsigned grid[3], block[3];
  unsigned shared_nbytes;
  void **params, **extra;
  CUkernel kernel;
  CUcontext context;
};
_Static_assert(sizeof(struct kernel_node) == 72, "kernel node");

static int kernel_node(const struct cudaKernelNodeParams *params, struct kernel_node *out) {
  CUfunction function;
  int result = params ? vgs_rt_function(params->func, &function) : CUDA_ERROR_INVALID_VALUE;
  if (!result)
    *out = (struct kernel_node){
        .function = function,
        .grid = {params->gridDim.x, params->gridDim.y, params->gridDim.z},
        .block = {params->blockDim.x, params->blockDim.y, params->blockDim.z},
        .shared_nbytes = params->sharedMemBytes,
        .params = params->kernelParams,
        .extra = params->extra,
    };
  return result;
}

int vgs_cudaGraphAddKernelNode(const struct vgs_rt_driver *cu, CUgraphNode *node, CUgraph graph,
                               const CUgraphNode *dependencies, size_t numDependencies,
                               const struct cudaKernelNodeParams *params) {
  struct kernel_node kernel;
  int result = kernel_node(params, &kernel);
  return result ? result : cu->cuGraphAddKernelNode_v2(node, graph, dependencies, numDependencies, (void *)&kernel);
}

int vgs_cudaGraphKernelNodeSetParams(const struct vgs_rt_driver *cu, CUgraphNode node,
                                     const struct cudaKernelNodeParams *params) {
  struct kernel_node kernel;
  int result = kernel_node(params, &kernel);
  return result ? result : cu->cuGraphKernelNodeSetParams_v2(node, (void *)&kernel);
}

int vgs_cudaGraphExecKernelNodeSetParams(const struct vgs_rt_driver *cu, CUgraphExec exec, CUgraphNode node,
                                         const struct cudaKernelNodeParams *params) {
  struct kernel_node kernel;
  int result = kernel_node(params, &kernel);
  return result ? result : cu->cuGraphExecKernelNodeSetParams_v2(exec, node, (void *)&kernel);
}

/* cudaMemsetParams and the driver's struct have one layout. */
int vgs_cudaGraphAddMemsetNode(const struct vgs_rt_driver *cu, CUgraphNode *node, CUgraph graph,
                               const CUgraphNode *dependencies, size_t numDependencies,
                               const struct cudaMemsetParams *params) {
  CUcontext context;
  int result = params ? cu->cuCtxGetCurrent(&context) : CUDA_ERROR_INVALID_VALUE;
  return result ? result
                : cu->cuGraphAddMemsetNode(node, graph, dependencies, numDependencies, (void *)params, context);
}

static int add_copy(const struct vgs_rt_driver *cu, CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                    size_t numDependencies, const CUDA_MEMCPY3D *copy) {
  CUcontext context;
  int result = cu->cuCtxGetCurrent(&context);
  return result ? result : cu->cuGraphAddMemcpyNode(node, graph, dependencies, numDependencies, copy, context);
}

int vgs_cudaGraphAddMemcpyNode(const struct vgs_rt_driver *cu, CUgraphNode *node, CUgraph graph,
                               const CUgraphNode *dependencies, size_t numDependencies,
                               const struct cudaMemcpy3DParms *params) {
  CUDA_MEMCPY3D copy;
  int result = vgs_rt_copy_box(params, &copy);
  return result ? result : add_copy(cu, node, graph, dependencies, numDependencies, &copy);
}

int vgs_cudaGraphAddMemcpyNode1D(const struct vgs_rt_driver *cu, CUgraphNode *node, CUgraph graph,
                                 const CUgraphNode *dependencies, size_t numDependencies, void *dst, const void *src,
                                 size_t count, int kind) {
  CUDA_MEMCPY3D copy;
  int result = vgs_rt_copy_row(dst, src, count, kind, &copy);
  return result ? result : add_copy(cu, node, graph, dependencies, numDependencies, &copy);
}

int vgs_cudaGraphExecMemcpyNodeSetParams1D(const struct vgs_rt_driver *cu, CUgraphExec exec, CUgraphNode node,
                                           void *dst, const void *src, size_t count, int kind) {
  CUDA_MEMCPY3D copy;
  CUcontext context;
  int result = vgs_rt_copy_row(dst, src, count, kind, &copy);
  if (!result)
    result = cu->cuCtxGetCurrent(&context);
  return result ? result : cu->cuGraphExecMemcpyNodeSetParams(exec, node, &copy, context);
}

#if VGS_RT_MAJOR == 11
/* The log of the older form stays empty: the driver's newer form has none. */
int vgs_cudaGraphInstantiate(const struct vgs_rt_driver *cu, CUgraphExec *exec, CUgraph graph, CUgraphNode *errorNode,
                             char *log, size_t nbytes) {
  if (log && nbytes)
    *log = 0;
  int result = cu->cuGraphInstantiateWithFlags(exec, graph, 0);
  if (!result && errorNode)
    *errorNode = NULL;
  return result;
}

int vgs_cudaGraphExecUpdate(const struct vgs_rt_driver *cu, CUgraphExec exec, CUgraph graph, CUgraphNode *errorNode,
                            int *update) {
  struct {
    int result;
    CUgraphNode node, from;
  } info = {0};
  int result = cu->cuGraphExecUpdate_v2(exec, graph, (void *)&info);
  if (errorNode)
    *errorNode = info.node;
  if (update)
    *update = info.result;
  return result;
}
#endif
