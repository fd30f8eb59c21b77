/* Questions about contexts, streams and graphs, in the numbers that records carry. */
#include "vgs_cupti_api.h"
#include "vgs_cupti_layout.h"
#include "vgs_cupti_result.h"
#include "vgs_cupti_state.h"

/* CUPTI_API_VERSION: of 12.9; of 13.0, the first of its major, so that no program expects what came later. */
enum { VERSION_12 = 28, VERSION_13 = 130000 };

int vgs_cuptiGetVersion(uint32_t *version) {
  if (!version)
    return CUPTI_ERROR_INVALID_PARAMETER;
  *version = VGS_CUPTI_MAJOR == 12 ? VERSION_12 : VERSION_13;
  return CUPTI_SUCCESS;
}

static int facts_of(CUcontext context, struct vgs_context_facts *facts) {
  const struct vgs_profiling *driver = vgs_cupti_driver();
  if (!driver)
    return CUPTI_ERROR_NOT_INITIALIZED;
  return driver->context(context, facts) ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_CONTEXT;
}

int vgs_cuptiGetContextId(CUcontext context, uint32_t *contextId) {
  struct vgs_context_facts facts;
  if (!contextId)
    return CUPTI_ERROR_INVALID_PARAMETER;
  int result = facts_of(context, &facts);
  if (!result)
    *contextId = facts.id;
  return result;
}

int vgs_cuptiGetDeviceId(CUcontext context, uint32_t *deviceId) {
  struct vgs_context_facts facts;
  if (!deviceId)
    return CUPTI_ERROR_INVALID_PARAMETER;
  int result = facts_of(context, &facts);
  if (!result)
    *deviceId = facts.device;
  return result;
}

int vgs_cuptiGetStreamIdEx(CUcontext context, CUstream stream, uint8_t perThreadStream, uint32_t *streamId) {
  struct vgs_context_facts facts;
  if (!streamId)
    return CUPTI_ERROR_INVALID_PARAMETER;
  int result = facts_of(context, &facts);
  if (!result && !vgs_cupti_driver()->stream_id(context, stream, perThreadStream, streamId))
    result = CUPTI_ERROR_INVALID_STREAM;
  return result;
}

int vgs_cuptiGetStreamId(CUcontext context, CUstream stream, uint32_t *streamId) {
  return vgs_cuptiGetStreamIdEx(context, stream, 0, streamId);
}

static int number_of(const void *handle, uint32_t *number) {
  const struct vgs_profiling *driver = vgs_cupti_driver();
  if (!handle || !number)
    return CUPTI_ERROR_INVALID_PARAMETER;
  if (!driver)
    return CUPTI_ERROR_NOT_INITIALIZED;
  *number = driver->object_id(handle);
  return CUPTI_SUCCESS;
}

int vgs_cuptiGetGraphId(CUgraph graph, uint32_t *pId) { return number_of(graph, pId); }

int vgs_cuptiGetGraphExecId(CUgraphExec graphExec, uint32_t *pId) { return number_of(graphExec, pId); }

int vgs_cuptiGetGraphNodeId(CUgraphNode node, uint64_t *nodeId) {
  const struct vgs_profiling *driver = vgs_cupti_driver();
  if (!node || !nodeId)
    return CUPTI_ERROR_INVALID_PARAMETER;
  if (!driver)
    return CUPTI_ERROR_NOT_INITIALIZED;
  *nodeId = driver->node_number(node);
  return CUPTI_SUCCESS;
}
