/* Properties of a context: device, flags, limits, hints. */
#include "vgs_apart.h"
#include "vgs_api.h"
#include "vgs_context.h"
#include "vgs_device.h"
#include "vgs_enter.h"
#include "vgs_mirror.h"
#include "vgs_session.h"
#include "vgs_stream.h"

enum { FLAG_MAP_HOST = 8 };

/* The current context, for questions that need no worker. A primary context can be current before it is active:
 * runtime 11's cudaSetDevice leaves it so, and then asks. */
static CUresult current_even_if_inactive(struct vgs_context **context, bool *active) {
  struct vgs_context *top = vgs_object_find(VGW_KIND_CONTEXT, vgs_thread_top());
  bool inactive_primary = top && top->primary && !__atomic_load_n(&top->active, __ATOMIC_ACQUIRE);
  CUresult result = inactive_primary ? CUDA_SUCCESS : vgs_enter_context();
  if (!result) {
    *context = inactive_primary ? top : vgs_context_entered;
    *active = !inactive_primary;
  }
  return result;
}

CUresult vgs_cuCtxGetDevice(CUdevice *device) {
  struct vgs_context *context;
  bool active;
  CUresult result = current_even_if_inactive(&context, &active);
  if (result)
    return result;
  if (!device)
    return CUDA_ERROR_INVALID_VALUE;
  *device = context->device;
  return CUDA_SUCCESS;
}

CUresult vgs_cuCtxGetFlags(unsigned int *flags) {
  struct vgs_context *context;
  bool active;
  CUresult result = current_even_if_inactive(&context, &active);
  if (result)
    return result;
  if (!flags)
    return CUDA_ERROR_INVALID_VALUE;
  *flags = *vgs_context_flags(context) | (active ? FLAG_MAP_HOST : 0);
  return CUDA_SUCCESS;
}

CUresult vgs_cuCtxSetFlags(unsigned int flags) {
  if (!vgs_context_flags_are_valid(flags))
    return CUDA_ERROR_INVALID_VALUE;
  *vgs_context_flags(vgs_context_entered) = flags;
  return CUDA_SUCCESS;
}

CUresult vgs_cuCtxSynchronize_v2(CUcontext ctx) {
  struct vgs_context *context = vgs_context_find(ctx);
  if (!context)
    return CUDA_ERROR_INVALID_CONTEXT;
  if (vgs_session_fault())
    return vgs_session_fault();
  vgs_context_entered = context;
  vgs_thread_context_id = context->wire_id;
  return vgs_mirror_wait_context();
}

CUresult vgs_cuCtxSetCacheConfig(int config) {
  if (config < 0 || config > 3)
    return CUDA_ERROR_INVALID_VALUE;
  vgs_context_entered->cache_config = config;
  return CUDA_SUCCESS;
}

CUresult vgs_cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority) {
  const struct vgs_device *device = vgs_device(vgs_context_entered->device);
  if (leastPriority)
    *leastPriority = device->priority_least;
  if (greatestPriority)
    *greatestPriority = device->priority_greatest;
  return CUDA_SUCCESS;
}

/* The request names the peer by its current wire id, because a primary context's handle outlives the id. */
CUresult vgs_cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
  struct vgs_context *peer = vgs_context_find(peerContext);
  if (Flags)
    return CUDA_ERROR_INVALID_VALUE;
  if (!peerContext || !peer)
    return CUDA_ERROR_INVALID_CONTEXT;
  if (!vgs_device_reaches(vgs_context_entered->device, peer->device))
    return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  CUresult result = vgs_send_cuCtxEnablePeerAccess(peer->wire_id, Flags);
  return result ? result : vgs_apart_open_to_peer(peer->device);
}

CUresult vgs_cuCtxDisablePeerAccess(CUcontext peerContext) {
  struct vgs_context *peer = vgs_context_find(peerContext);
  return peerContext && peer ? vgs_send_cuCtxDisablePeerAccess(peer->wire_id) : CUDA_ERROR_INVALID_CONTEXT;
}
