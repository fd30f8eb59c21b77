/* Capture and graphs. The client keeps the rules of capture modes, so the driver captures in relaxed mode: its threads
 * here are not the program's. */
#include "vgx_custom.h"
#include "vgx_session.h"

enum { MODE_RELAXED = 2 };

CUresult vgx_cuStreamBeginCapture_v2(struct vgx_session *s, const struct vgw_req_cuStreamBeginCapture_v2 *req) {
  void *stream;
  if (!s->backend->cuStreamBeginCapture_v2)
    return vgx_not_offered(s, "cuStreamBeginCapture");
  CUresult result = vgx_handle(s, VGW_KIND_STREAM, req->hStream, &stream);
  return result == CUDA_SUCCESS ? s->backend->cuStreamBeginCapture_v2(stream, MODE_RELAXED) : result;
}

CUresult vgx_cuGraphExecDestroy(struct vgx_session *s, const struct vgw_req_cuGraphExecDestroy *req) {
  VGX_DESTROY(s, cuGraphExecDestroy, VGW_KIND_GRAPH_EXEC, CUgraphExec, req->hGraphExec);
}

/* The update's own error is part of the answer, because its reason is. */
CUresult vgx_cuGraphExecUpdate_v2(struct vgx_session *s, const struct vgw_req_cuGraphExecUpdate_v2 *req,
                                  struct vgw_rep_cuGraphExecUpdate_v2 *rep) {
  void *exec, *graph;
  CUgraphExecUpdateResultInfo info = {.result = CU_GRAPH_EXEC_UPDATE_ERROR};
  if (!s->backend->cuGraphExecUpdate_v2)
    return vgx_not_offered(s, "cuGraphExecUpdate");
  if (!req->hGraphExec || !req->hGraph)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = vgx_handle(s, VGW_KIND_GRAPH_EXEC, req->hGraphExec, &exec);
  if (result == CUDA_SUCCESS)
    result = vgx_handle(s, VGW_KIND_GRAPH, req->hGraph, &graph);
  if (result != CUDA_SUCCESS)
    return result;
  rep->error = (int32_t)s->backend->cuGraphExecUpdate_v2(exec, graph, &info);
  rep->reason = info.result;
  return CUDA_SUCCESS;
}
