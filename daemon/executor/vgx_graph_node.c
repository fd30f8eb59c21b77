/* Nodes of graphs: kernels, copies, fills, empty ones. Host functions and child graphs: vgx_graph_part.c. */
#include <stdlib.h>

#include "vgx_custom.h"
#include "vgx_graph.h"

#define MAX_IDS (VGW_PIECE_NBYTES / sizeof(uint32_t)) /* in one record */

/* What depends on such a node would have to depend on both its halves. */
static bool is_split(struct vgx_session *s, uint32_t node) {
  bool found = false;
  pthread_mutex_lock(&s->table_lock);
  for (uint32_t i = 0; s->has_split && i < s->graph_part_count && !found; i++)
    found = s->graph_parts[i].split && s->graph_parts[i].id == node;
  pthread_mutex_unlock(&s->table_lock);
  return found;
}

/* The nodes of an array of ids, malloc'ed. */
static CUresult nodes_of(struct vgx_session *s, const void *ids, uint32_t ids_nbytes, CUgraphNode **nodes) {
  uint32_t count = ids_nbytes / sizeof(uint32_t);
  if (ids_nbytes % sizeof(uint32_t) || count > MAX_IDS)
    return vgx_violation(s, "ids of graph nodes");
  CUgraphNode *found = malloc((count + 1) * sizeof *found);
  if (!found)
    return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = CUDA_SUCCESS;
  for (uint32_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
    uint32_t id;
    void *node;
    memcpy(&id, (const char *)ids + i * sizeof id, sizeof id);
    result = id ? vgx_handle(s, VGW_KIND_GRAPH_NODE, id, &node) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && is_split(s, id))
      result = CUDA_ERROR_NOT_SUPPORTED;
    found[i] = result == CUDA_SUCCESS ? node : NULL;
  }
  if (result != CUDA_SUCCESS) {
    free(found);
    return result;
  }
  *nodes = found;
  return CUDA_SUCCESS;
}

CUresult vgx_adding_begin(struct vgx_session *s, struct vgx_adding *a, uint32_t graph, const void *ids,
                          uint32_t ids_nbytes) {
  CUgraph found;
  CUresult result = vgx_graph_of(s, graph, &found);
  if (result != CUDA_SUCCESS)
    return result;
  *a = (struct vgx_adding){.graph = found, .count = ids_nbytes / (uint32_t)sizeof(uint32_t)};
  return nodes_of(s, ids, ids_nbytes, &a->dependencies);
}

CUresult vgx_adding_end(struct vgx_session *s, struct vgx_adding *a, uint32_t graph, uint32_t node, CUresult result) {
  free(a->dependencies);
  if (!vgx_handle_reserve(s, VGW_KIND_GRAPH_NODE, node))
    return vgx_violation(s, "node taken");
  struct vgx_graph_part part = {.graph = graph, .id = node, .kind = VGW_KIND_GRAPH_NODE};
  if (result == CUDA_SUCCESS && !vgx_graph_note(s, &part))
    result = CUDA_ERROR_OUT_OF_MEMORY;
  vgx_handle_set(s, VGW_KIND_GRAPH_NODE, node, result == CUDA_SUCCESS ? a->made : NULL);
  return result;
}

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
                                     const void *dependencies, const void *params) {
  CUfunction function;
  if (!s->backend->cuGraphAddKernelNode_v2)
    return vgx_not_offered(s, "cuGraphAddKernelNode");
  CUresult found = vgx_function(s, req->kind, req->object, &function);
  if (found != CUDA_SUCCESS)
    return found;
  void *extra[] = EXTRA(params, req->params_nbytes);
  CUDA_KERNEL_NODE_PARAMS_v2 node = KERNEL_PARAMS(req, function, extra);
  VGX_ADD(s, req, dependencies, s->backend->cuGraphAddKernelNode_v2(VGX_PLACE, &node));
}

CUresult vgx_cuGraphKernelNodeSetParams_v2(struct vgx_session *s,
                                           const struct vgw_req_cuGraphKernelNodeSetParams_v2 *req,
                                           const void *params) {
  CUfunction function;
  CUgraphNode node;
  if (!s->backend->cuGraphKernelNodeSetParams_v2)
    return vgx_not_offered(s, "cuGraphKernelNodeSetParams");
  CUresult result = vgx_node_of(s, req->hNode, &node);
  if (result == CUDA_SUCCESS)
    result = vgx_function(s, req->kind, req->object, &function);
  if (result != CUDA_SUCCESS)
    return result;
  void *extra[] = EXTRA(params, req->params_nbytes);
  CUDA_KERNEL_NODE_PARAMS_v2 changed = KERNEL_PARAMS(req, function, extra);
  return s->backend->cuGraphKernelNodeSetParams_v2(node, &changed);
}

CUresult vgx_cuGraphExecKernelNodeSetParams_v2(struct vgx_session *s,
                                               const struct vgw_req_cuGraphExecKernelNodeSetParams_v2 *req,
                                               const void *params) {
  CUfunction function;
  CUgraphExec exec;
  CUgraphNode node;
  if (!s->backend->cuGraphExecKernelNodeSetParams_v2)
    return vgx_not_offered(s, "cuGraphExecKernelNodeSetParams");
  CUresult result = vgx_node_in_exec(s, req->hGraphExec, req->hNode, &exec, &node);
  if (result == CUDA_SUCCESS)
    result = vgx_function(s, req->kind, req->object, &function);
  if (result != CUDA_SUCCESS)
    return result;
  void *extra[] = EXTRA(params, req->params_nbytes);
  CUDA_KERNEL_NODE_PARAMS_v2 changed = KERNEL_PARAMS(req, function, extra);
  return s->backend->cuGraphExecKernelNodeSetParams_v2(exec, node, &changed);
}

static CUresult context_of(struct vgx_session *s, uint32_t id, CUcontext *ctx) {
  void *found;
  CUresult result = id ? vgx_handle(s, VGW_KIND_CONTEXT, id, &found) : CUDA_ERROR_INVALID_CONTEXT;
  if (result == CUDA_SUCCESS)
    *ctx = found;
  return result;
}

/* Whether one side of a copy is memory of the session's: the bytes it spans do not wrap and can be reached. */
static bool reachable(struct vgx_session *s, uint64_t address, uint64_t pitch, uint64_t rows, uint64_t width,
                      uint64_t height, uint64_t depth) {
  uint64_t slice, planes, lines, span;
  if (!width || !height || !depth)
    return true;
  return !__builtin_mul_overflow(pitch, rows, &slice) && !__builtin_mul_overflow(slice, depth - 1, &planes) &&
         !__builtin_mul_overflow(pitch, height - 1, &lines) && !__builtin_add_overflow(planes, lines, &span) &&
         !__builtin_add_overflow(span, width, &span) && vgx_is_reachable(s, address, span);
}

#define COPY_IS_REACHABLE(s, req)                                                                                      \
  (reachable(s, (req)->dst, (req)->dstPitch, (req)->dstRows, (req)->width, (req)->height, (req)->depth) &&             \
   reachable(s, (req)->src, (req)->srcPitch, (req)->srcRows, (req)->width, (req)->height, (req)->depth))

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

CUresult vgx_cuGraphAddMemcpyNode(struct vgx_session *s, const struct vgw_req_cuGraphAddMemcpyNode *req,
                                  const void *dependencies) {
  CUcontext ctx;
  if (!s->backend->cuGraphAddMemcpyNode)
    return vgx_not_offered(s, "cuGraphAddMemcpyNode");
  CUresult found = context_of(s, req->ctx, &ctx);
  if (found != CUDA_SUCCESS)
    return found;
  if (!COPY_IS_REACHABLE(s, req))
    return CUDA_ERROR_INVALID_VALUE;
  CUDA_MEMCPY3D copy = COPY_PARAMS(req);
  VGX_ADD(s, req, dependencies, s->backend->cuGraphAddMemcpyNode(VGX_PLACE, &copy, ctx));
}

CUresult vgx_cuGraphExecMemcpyNodeSetParams(struct vgx_session *s,
                                            const struct vgw_req_cuGraphExecMemcpyNodeSetParams *req) {
  CUcontext ctx;
  CUgraphExec exec;
  CUgraphNode node;
  if (!s->backend->cuGraphExecMemcpyNodeSetParams)
    return vgx_not_offered(s, "cuGraphExecMemcpyNodeSetParams");
  if (is_split(s, req->hNode))
    return CUDA_ERROR_NOT_SUPPORTED;
  CUresult result = vgx_node_in_exec(s, req->hGraphExec, req->hNode, &exec, &node);
  if (result == CUDA_SUCCESS)
    result = context_of(s, req->ctx, &ctx);
  if (result != CUDA_SUCCESS)
    return result;
  if (!COPY_IS_REACHABLE(s, req))
    return CUDA_ERROR_INVALID_VALUE;
  CUDA_MEMCPY3D copy = COPY_PARAMS(req);
  return s->backend->cuGraphExecMemcpyNodeSetParams(exec, node, &copy, ctx);
}

CUresult vgx_cuGraphAddMemsetNode(struct vgx_session *s, const struct vgw_req_cuGraphAddMemsetNode *req,
                                  const void *dependencies) {
  CUcontext ctx;
  if (!s->backend->cuGraphAddMemsetNode)
    return vgx_not_offered(s, "cuGraphAddMemsetNode");
  CUresult found = context_of(s, req->ctx, &ctx);
  if (found != CUDA_SUCCESS)
    return found;
  CUDA_MEMSET_NODE_PARAMS fill = req->memsetParams;
  VGX_ADD(s, req, dependencies, s->backend->cuGraphAddMemsetNode(VGX_PLACE, &fill, ctx));
}

CUresult vgx_cuGraphExecMemsetNodeSetParams(struct vgx_session *s,
                                            const struct vgw_req_cuGraphExecMemsetNodeSetParams *req) {
  CUcontext ctx;
  CUgraphExec exec;
  CUgraphNode node;
  if (!s->backend->cuGraphExecMemsetNodeSetParams)
    return vgx_not_offered(s, "cuGraphExecMemsetNodeSetParams");
  CUresult result = vgx_node_in_exec(s, req->hGraphExec, req->hNode, &exec, &node);
  if (result == CUDA_SUCCESS)
    result = context_of(s, req->ctx, &ctx);
  if (result != CUDA_SUCCESS)
    return result;
  CUDA_MEMSET_NODE_PARAMS fill = req->memsetParams;
  return s->backend->cuGraphExecMemsetNodeSetParams(exec, node, &fill, ctx);
}

CUresult vgx_cuGraphAddEmptyNode(struct vgx_session *s, const struct vgw_req_cuGraphAddEmptyNode *req,
                                 const void *dependencies) {
  if (!s->backend->cuGraphAddEmptyNode)
    return vgx_not_offered(s, "cuGraphAddEmptyNode");
  VGX_ADD(s, req, dependencies, s->backend->cuGraphAddEmptyNode(VGX_PLACE));
}

CUresult vgx_cuGraphAddDependencies(struct vgx_session *s, const struct vgw_req_cuGraphAddDependencies *req,
                                    const void *from, const void *to) {
  void *graph;
  CUgraphNode *sources = NULL, *targets = NULL;
  if (!s->backend->cuGraphAddDependencies)
    return vgx_not_offered(s, "cuGraphAddDependencies");
  CUresult result = req->hGraph ? vgx_handle(s, VGW_KIND_GRAPH, req->hGraph, &graph) : CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS)
    result = nodes_of(s, from, req->ids_nbytes, &sources);
  if (result != CUDA_SUCCESS)
    return result;
  result = nodes_of(s, to, req->ids_nbytes, &targets);
  if (result == CUDA_SUCCESS) {
    result = s->backend->cuGraphAddDependencies(graph, sources, targets, req->ids_nbytes / sizeof(uint32_t));
    free(targets);
  }
  free(sources);
  return result;
}
