/* Updates of executable graphs. */
#include "vgx_custom.h"
#include "vgx_session.h"

/* The update's own error is part of the answer, because its reason is. */
CUresult vgx_cuGraphExecUpdate_v2(struct vgx_session *s, const struct vgw_req_cuGraphExecUpdate_v2 *req,
                                  CUgraphExec exec, CUgraph graph, struct vgw_rep_cuGraphExecUpdate_v2 *rep) {
  CUgraphExecUpdateResultInfo info = {.result = CU_GRAPH_EXEC_UPDATE_ERROR};
  (void)req;
  rep->error = (int32_t)s->backend->cuGraphExecUpdate_v2(exec, graph, &info);
  rep->reason = info.result;
  return CUDA_SUCCESS;
}
