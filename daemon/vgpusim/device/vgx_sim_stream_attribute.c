/* Attributes of streams: stored and returned, without effect here. */
#include "vgx_sim_stream_attribute.h"

#include <string.h>

#include "vgx_sim_runtime.h"

enum { POLICY_AUTO = 1, POLICY_MAX = 4, WINDOW_NBYTES_OFFSET = 8 };

/* Where a stream keeps an attribute, and how many bytes it has. NULL: streams have none of this kind. */
static void *place_of(CUstream stream, int attribute, size_t *nbytes) {
  switch (attribute) {
  case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    *nbytes = sizeof stream->window;
    return stream->window;
  case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    *nbytes = sizeof stream->policy;
    return &stream->policy;
  case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    *nbytes = sizeof stream->priority;
    return &stream->priority;
  default:
    return NULL;
  }
}

/* Only the size of an access window is checked: that its lines persist in a cache is a hint. */
bool vgx_sim_attribute_is_valid(const struct vgx_sim_device *device, int attribute,
                                const CUlaunchAttributeValue *value) {
  uint64_t window_nbytes;
  memcpy(&window_nbytes, value->pad + WINDOW_NBYTES_OFFSET, sizeof window_nbytes);
  bool wrong = (attribute == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY &&
                (value->value < POLICY_AUTO || value->value > POLICY_MAX)) ||
               (attribute == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW &&
                window_nbytes > (uint64_t)vgx_sim_attribute(device, VGX_SIM_MAX_ACCESS_POLICY_WINDOW, 0));
  return !wrong;
}

CUresult vgx_sim_cuStreamSetAttribute(CUstream hStream, int attr, const CUlaunchAttributeValue *value) {
  CUstream stream;
  size_t nbytes;
  CUresult result = vgx_sim_enter_stream(hStream, NULL, &stream);
  if (result != CUDA_SUCCESS)
    return result;
  void *place = place_of(stream, attr, &nbytes);
  if (!place || !value || !vgx_sim_attribute_is_valid(stream->ctx->device, attr, value))
    return CUDA_ERROR_INVALID_VALUE;
  vgx_sim_lock();
  memcpy(place, value, nbytes);
  vgx_sim_unlock();
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuStreamGetAttribute(CUstream hStream, int attr, CUlaunchAttributeValue *value_out) {
  CUstream stream;
  size_t nbytes;
  CUresult result = vgx_sim_enter_stream(hStream, NULL, &stream);
  if (result != CUDA_SUCCESS)
    return result;
  const void *place = place_of(stream, attr, &nbytes);
  if (!place || !value_out)
    return CUDA_ERROR_INVALID_VALUE;
  *value_out = (CUlaunchAttributeValue){0};
  vgx_sim_lock();
  memcpy(value_out, place, nbytes);
  vgx_sim_unlock();
  return CUDA_SUCCESS;
}
