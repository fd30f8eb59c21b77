/* Devices that reach each other's memory. All of it lies in this process, at addresses of its own, so a kernel reaches
 * a peer's memory whether its context has asked for that or not; this file only keeps the state that the calls report.
 */
#include "vgx_sim_internal.h"
#include "vgx_sim_runtime.h"

enum { LOCATION_DEVICE = 1, ACCESS_READ = 1, ACCESS_READWRITE = 3 };

static uint64_t bit_of(const struct vgx_sim_device *device) { return 1ull << device->index; }
_Static_assert(VGX_SIM_DEVICES_MAX <= 64, "a bit for each device");

/* The current context, and the bit of the peer's device. */
static CUresult enter(CUcontext peer, CUcontext *ctx, uint64_t *bit) {
  CUresult result = vgx_sim_enter(ctx);
  if (result == CUDA_SUCCESS)
    result = vgx_sim_check(peer);
  if (result == CUDA_SUCCESS)
    *bit = bit_of(peer->device);
  return result;
}

CUresult vgx_sim_cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
  CUcontext ctx;
  uint64_t bit = 0;
  CUresult result = enter(peerContext, &ctx, &bit);
  if (result != CUDA_SUCCESS)
    return result;
  if (Flags)
    return CUDA_ERROR_INVALID_VALUE;
  if (peerContext->device == ctx->device)
    return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  vgx_sim_lock();
  if (ctx->peers & bit)
    result = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  ctx->peers |= bit;
  vgx_sim_unlock();
  return result;
}

CUresult vgx_sim_cuCtxDisablePeerAccess(CUcontext peerContext) {
  CUcontext ctx;
  uint64_t bit = 0;
  CUresult result = enter(peerContext, &ctx, &bit);
  if (result != CUDA_SUCCESS)
    return result;
  vgx_sim_lock();
  if (!(ctx->peers & bit))
    result = CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  ctx->peers &= ~bit;
  vgx_sim_unlock();
  return result;
}

/* A pool's own device always has access; it cannot be removed. */
CUresult vgx_sim_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count) {
  if (!pool || pool->magic != VGX_SIM_POOL || !map || !count)
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; i++) {
    const struct vgx_sim_device *device = vgx_sim_device_at(map[i].location.id);
    int flags = map[i].flags;
    if (map[i].location.type != LOCATION_DEVICE || (flags && flags != ACCESS_READ && flags != ACCESS_READWRITE))
      return CUDA_ERROR_INVALID_VALUE;
    if (!device)
      return CUDA_ERROR_INVALID_DEVICE;
    if (device == pool->device && flags != ACCESS_READWRITE)
      return CUDA_ERROR_INVALID_DEVICE;
  }
  vgx_sim_lock();
  for (size_t i = 0; i < count; i++) {
    uint64_t bit = bit_of(vgx_sim_device_at(map[i].location.id));
    pool->readers = map[i].flags ? pool->readers | bit : pool->readers & ~bit;
    pool->writers = map[i].flags == ACCESS_READWRITE ? pool->writers | bit : pool->writers & ~bit;
  }
  vgx_sim_unlock();
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuMemPoolGetAccess(int *flags, CUmemoryPool pool, const CUmemLocation *location) {
  if (!flags || !pool || pool->magic != VGX_SIM_POOL || !location || location->type != LOCATION_DEVICE)
    return CUDA_ERROR_INVALID_VALUE;
  const struct vgx_sim_device *device = vgx_sim_device_at(location->id);
  if (!device)
    return CUDA_ERROR_INVALID_DEVICE;
  vgx_sim_lock();
  uint64_t bit = bit_of(device);
  *flags = device == pool->device || pool->writers & bit ? ACCESS_READWRITE : pool->readers & bit ? ACCESS_READ : 0;
  vgx_sim_unlock();
  return CUDA_SUCCESS;
}
