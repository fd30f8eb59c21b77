/* Captures into graphs that the client knows from the beginning, and the parameters of captured nodes. */
#include "vgx_graph_query.h"

#include "vgx_custom.h"
#include "vgx_handle.h"
#include "vgx_session.h"

enum { MODE_RELAXED = 2 }; /* the worker's threads are not the program's: the client enforces the mode's rules */

/* On NOT_SUPPORTED, which drivers before 12.3 return, the client uses another way. */
CUresult vgx_vgpuCaptureBegin(struct vgx_session *s, const struct vgw_req_vgpuCaptureBegin *req, CUstream stream,
                              CUgraph *graph) {
  const struct vgx_backend *driver = s->backend;
  (void)req;
  if (!driver->cuStreamBeginCaptureToGraph || !driver->cuGraphCreate || !driver->cuStreamGetCaptureInfo_v3)
    return CUDA_ERROR_NOT_SUPPORTED;
  CUresult result = driver->cuGraphCreate(graph, 0);
  if (result != CUDA_SUCCESS)
    return result;
  result = driver->cuStreamBeginCaptureToGraph(stream, *graph, NULL, NULL, 0, MODE_RELAXED);
  if (result != CUDA_SUCCESS)
    driver->cuGraphDestroy(*graph);
  return result;
}

/* vgpuCaptureEnd ends a capture whose graph has a handle. With a second handle the graph could be destroyed while a
 * record uses it by the first. */
CUresult vgx_cuStreamEndCapture(struct vgx_session *s, const struct vgw_req_cuStreamEndCapture *req, CUstream stream,
                                CUgraph *graph) {
  (void)req;
  if (!s->backend->cuStreamEndCapture)
    return vgx_not_offered(s, "cuStreamEndCapture");
  CUresult result = s->backend->cuStreamEndCapture(stream, graph);
  void *captured = *graph;
  uint32_t id;
  if (result == CUDA_SUCCESS && vgx_handle_ids(s, VGW_KIND_GRAPH, 0, &captured, 1, &id) == CUDA_SUCCESS)
    return vgx_violation(s, "the end of a capture whose graph has a handle");
  return result;
}

/* The nodes that the stream's next one will depend on; ILLEGAL_STATE: it does not capture into that graph. */
static CUresult ask(struct vgx_session *s, CUstream stream, CUgraph graph, const CUgraphNode **nodes,
                    const CUgraphEdgeData **edges, size_t *count) {
  enum { ACTIVE = 1 };
  int status = 0;
  uint64_t capture;
  CUgraph captured = NULL;
  *count = 0;
  *nodes = NULL;
  *edges = NULL;
  if (!s->backend->cuStreamGetCaptureInfo_v3)
    return vgx_not_offered(s, "cuStreamGetCaptureInfo");
  CUresult result = s->backend->cuStreamGetCaptureInfo_v3(stream, &status, &capture, &captured, nodes, edges, count);
  return result != CUDA_SUCCESS || (status == ACTIVE && captured == graph) ? result : CUDA_ERROR_ILLEGAL_STATE;
}

/* The new node waits for all of the nodes before it, also where other nodes would not. */
CUresult vgx_capture_child(struct vgx_session *s, CUstream stream, CUgraph graph, CUgraph child) {
  enum { INSTEAD = 1 };
  const struct vgx_backend *driver = s->backend;
  const CUgraphNode *dependencies;
  const CUgraphEdgeData *edges;
  size_t count;
  CUgraphNode node;
  if (!driver->cuStreamUpdateCaptureDependencies || !driver->cuGraphAddChildGraphNode)
    return vgx_not_offered(s, "cuStreamUpdateCaptureDependencies");
  CUresult result = ask(s, stream, graph, &dependencies, &edges, &count);
  if (result == CUDA_SUCCESS)
    result = driver->cuGraphAddChildGraphNode(&node, graph, dependencies, count, child);
  return result == CUDA_SUCCESS ? driver->cuStreamUpdateCaptureDependencies(stream, &node, 1, INSTEAD) : result;
}

CUresult vgx_capture_dependencies(struct vgx_session *s, CUstream stream, CUgraph graph, CUgraphNode *nodes,
                                  CUgraphEdgeData *edges, size_t *count) {
  const CUgraphNode *found;
  const CUgraphEdgeData *data;
  size_t room = *count;
  CUresult result = ask(s, stream, graph, &found, &data, count);
  for (size_t i = 0; result == CUDA_SUCCESS && i < room && i < *count; i++) {
    nodes[i] = found[i];
    edges[i] = data ? data[i] : (CUgraphEdgeData){0};
  }
  return result;
}

/* The kind and id of the function that a node launches: a function of a module, or a library's kernel. */
static CUresult name_function(struct vgx_session *s, const CUDA_KERNEL_NODE_PARAMS_v2 *p, uint32_t *kind,
                              uint32_t *id) {
  void *function = p->func, *kernel = p->kern;
  *kind = VGW_KIND_FUNCTION;
  if (function && vgx_handle_ids(s, VGW_KIND_FUNCTION, 0, &function, 1, id) == CUDA_SUCCESS)
    return CUDA_SUCCESS;
  *kind = VGW_KIND_KERNEL;
  if (kernel && vgx_handle_ids(s, VGW_KIND_KERNEL, 0, &kernel, 1, id) == CUDA_SUCCESS)
    return CUDA_SUCCESS;
  CUresult result = CUDA_ERROR_NOT_FOUND;
  pthread_mutex_lock(&s->table_lock); /* the lock keeps objects from being destroyed */
  for (uint32_t i = 1; function && i <= s->tables[VGW_KIND_KERNEL].greatest && result != CUDA_SUCCESS; i++) {
    void *object = vgx_handle_live_locked(s, VGW_KIND_KERNEL, i);
    CUfunction of_kernel;
    if (object && s->backend->cuKernelGetFunction(&of_kernel, object) == CUDA_SUCCESS && of_kernel == function) {
      *id = i;
      result = CUDA_SUCCESS;
    }
  }
  pthread_mutex_unlock(&s->table_lock);
  return result;
}

/* Pack the parameters into one block, as in a launch's record. The block's `capacity` bytes are zero before. */
static CUresult pack(struct vgx_session *s, const CUDA_KERNEL_NODE_PARAMS_v2 *p, uint8_t *block, uint64_t capacity,
                     uint64_t *used) {
  CUfunction function = p->func;
  *used = 0;
  if (!function && s->backend->cuKernelGetFunction(&function, p->kern) != CUDA_SUCCESS)
    return CUDA_ERROR_UNKNOWN;
  if (!p->kernelParams && p->extra) {
    const void *buffer = NULL;
    size_t nbytes = 0;
    for (void **next = p->extra; *next != CU_LAUNCH_PARAM_END; next += 2) {
      if (*next == CU_LAUNCH_PARAM_BUFFER_POINTER)
        buffer = next[1];
      else if (*next == CU_LAUNCH_PARAM_BUFFER_SIZE)
        nbytes = *(const size_t *)next[1];
      else
        return CUDA_ERROR_UNKNOWN;
    }
    if (nbytes > capacity || (nbytes && !buffer))
      return CUDA_ERROR_UNKNOWN;
    if (nbytes)
      memcpy(block, buffer, nbytes);
    *used = nbytes;
    return CUDA_SUCCESS;
  }
  for (size_t i = 0, offset, nbytes; p->kernelParams; i++) {
    CUresult result = s->backend->cuFuncGetParamInfo(function, i, &offset, &nbytes);
    if (result != CUDA_SUCCESS) /* no such parameter, or its layout is unknown (vgx_cuda_params.c) */
      return result == CUDA_ERROR_NOT_FOUND ? result : CUDA_SUCCESS;
    if (offset > capacity || nbytes > capacity - offset)
      return CUDA_ERROR_UNKNOWN;
    memcpy(block + offset, p->kernelParams[i], nbytes);
    *used = offset + nbytes > *used ? offset + nbytes : *used;
  }
  return CUDA_SUCCESS;
}

CUresult vgx_cuGraphKernelNodeGetParams_v2(struct vgx_session *s,
                                           const struct vgw_req_cuGraphKernelNodeGetParams_v2 *req, CUgraphNode node,
                                           struct vgw_rep_cuGraphKernelNodeGetParams_v2 *rep, void *params,
                                           uint64_t *params_nbytes) {
  CUDA_KERNEL_NODE_PARAMS_v2 p = {0};
  (void)req;
  if (!s->backend->cuFuncGetParamInfo)
    return vgx_not_offered(s, "cuFuncGetParamInfo");
  uint64_t capacity = *params_nbytes;
  CUresult result = s->backend->cuGraphKernelNodeGetParams_v2(node, &p);
  if (result == CUDA_SUCCESS)
    result = name_function(s, &p, &rep->kind, &rep->object);
  if (result != CUDA_SUCCESS)
    return result;
  memset(params, 0, capacity);
  result = pack(s, &p, params, capacity, params_nbytes);
  rep->gridDimX = p.gridDimX;
  rep->gridDimY = p.gridDimY;
  rep->gridDimZ = p.gridDimZ;
  rep->blockDimX = p.blockDimX;
  rep->blockDimY = p.blockDimY;
  rep->blockDimZ = p.blockDimZ;
  rep->sharedMemBytes = p.sharedMemBytes;
  return result;
}
