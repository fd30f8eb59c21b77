/* Nodes of graphs: kernels and copies. Host functions and child graphs: vgx_graph_part.c. */
#include "vgx_custom.h"
#include "vgx_memory.h"
#include "vgx_session.h"

/* Kernel parameters as the driver takes them; `extra` is what they point at. */
#define KERNEL_PARAMS(req, object, extra)                                                                              \
  {.func = (req)->kind == VGW_KIND_KERNEL ? NULL : object,                                                             \
   .gridDimX = (req)->gridDimX,                                                                                        \
   .gridDimY = (req)->gridDimY,                                                                                        \
   .gridDimZ = (req)->gridDimZ,                                                                                        \
   .blockDimX = (req)->blockDimX,                                                                                      \
   .blockDimY = (req)->blockDimY,                                                                                      \
   .blockDimZ = (req)->blockDimZ,                                                                                      \
   .sharedMemBytes = (req)->sharedMemBytes,                                                                            \
   .extra = (req)->params_nbytes ? extra : NULL,                                                                       \
   .kern = (req)->kind == VGW_KIND_KERNEL ? (CUkernel)object : NULL}

#define EXTRA(params, nbytes)                                                                                          \
  {CU_LAUNCH_PARAM_BUFFER_POINTER, (void *)(params), CU_LAUNCH_PARAM_BUFFER_SIZE, &(size_t){nbytes},                   \
   CU_LAUNCH_PARAM_END}

CUresult vgx_cuGraphAddKernelNode_v2(struct vgx_session *s, const struct vgw_req_cuGraphAddKernelNode_v2 *req,
                                     CUgraph graph, CUfunction function, CUgraphNode *node,
                                     const CUgraphNode *dependencies, const void *params) {
  void *extra[] = EXTRA(params, req->params_nbytes);
  CUDA_KERNEL_NODE_PARAMS_v2 given = KERNEL_PARAMS(req, function, extra);
  return s->backend->cuGraphAddKernelNode_v2(node, graph, dependencies, req->numDependencies, &given);
}

CUresult vgx_cuGraphKernelNodeSetParams_v2(struct vgx_session *s,
                                           const struct vgw_req_cuGraphKernelNodeSetParams_v2 *req, CUgraphNode node,
                                           CUfunction function, const void *params) {
  void *extra[] = EXTRA(params, req->params_nbytes);
  CUDA_KERNEL_NODE_PARAMS_v2 changed = KERNEL_PARAMS(req, function, extra);
  return s->backend->cuGraphKernelNodeSetParams_v2(node, &changed);
}

CUresult vgx_cuGraphExecKernelNodeSetParams_v2(struct vgx_session *s,
                                               const struct vgw_req_cuGraphExecKernelNodeSetParams_v2 *req,
                                               CUgraphExec exec, CUgraphNode node, CUfunction function,
                                               const void *params) {
  void *extra[] = EXTRA(params, req->params_nbytes);
  CUDA_KERNEL_NODE_PARAMS_v2 changed = KERNEL_PARAMS(req, function, extra);
  return s->backend->cuGraphExecKernelNodeSetParams_v2(exec, node, &changed);
}

#define COPY_IS_REACHABLE(s, req)                                                                                      \
  (vgx_box_is_reachable(s, (req)->dst, (req)->dstPitch, (req)->dstRows, (req)->width, (req)->height, (req)->depth) &&  \
   vgx_box_is_reachable(s, (req)->src, (req)->srcPitch, (req)->srcRows, (req)->width, (req)->height, (req)->depth))

/* Pinned memory has the same address here, so both sides are unified addresses. */
#define COPY_PARAMS(req)                                                                                               \
  {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,                                                                             \
   .srcDevice = (req)->src,                                                                                            \
   .srcPitch = (req)->srcPitch,                                                                                        \
   .srcHeight = (req)->srcRows,                                                                                        \
   .dstMemoryType = CU_MEMORYTYPE_UNIFIED,                                                                             \
   .dstDevice = (req)->dst,                                                                                            \
   .dstPitch = (req)->dstPitch,                                                                                        \
   .dstHeight = (req)->dstRows,                                                                                        \
   .WidthInBytes = (req)->width,                                                                                       \
   .Height = (req)->height,                                                                                            \
   .Depth = (req)->depth}

CUresult vgx_cuGraphAddMemcpyNode(struct vgx_session *s, const struct vgw_req_cuGraphAddMemcpyNode *req, CUgraph graph,
                                  CUcontext ctx, CUgraphNode *node, const CUgraphNode *dependencies) {
  if (!COPY_IS_REACHABLE(s, req))
    return CUDA_ERROR_INVALID_VALUE;
  CUDA_MEMCPY3D copy = COPY_PARAMS(req);
  return s->backend->cuGraphAddMemcpyNode(node, graph, dependencies, req->numDependencies, &copy, ctx);
}

CUresult vgx_cuGraphExecMemcpyNodeSetParams(struct vgx_session *s,
                                            const struct vgw_req_cuGraphExecMemcpyNodeSetParams *req, CUgraphExec exec,
                                            CUgraphNode node, CUcontext ctx) {
  if (vgx_handle_is_split(s, VGW_KIND_GRAPH_NODE, req->hNode))
    return CUDA_ERROR_NOT_SUPPORTED;
  if (!COPY_IS_REACHABLE(s, req))
    return CUDA_ERROR_INVALID_VALUE;
  CUDA_MEMCPY3D copy = COPY_PARAMS(req);
  return s->backend->cuGraphExecMemcpyNodeSetParams(exec, node, &copy, ctx);
}
