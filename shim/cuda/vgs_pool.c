/* Stream-ordered allocation. */
#include "vgs_pool.h"
#include "vgs_api.h"
#include "vgs_capture.h"
#include "vgs_device.h"
#include "vgs_enter.h"
#include "vgs_range.h"
#include "vgs_stream.h"
#include <string.h>

enum vgs_range_kind vgs_pool_range_kind(const struct vgs_stream *stream) {
  return stream && vgs_capture_status(stream->capture) == VGS_CAPTURE_ACTIVE ? VGS_RANGE_GRAPH : VGS_RANGE_POOL;
}

static struct vgs_pool *find(CUmemoryPool pool) { return vgs_object_find(VGW_KIND_MEMPOOL, pool); }

/* The default pools: one object per device and session, asked of the worker once. */
static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;
static CUmemoryPool default_pools[VGS_DEVICE_MAX], current_pools[VGS_DEVICE_MAX];

static CUresult default_pool(CUdevice dev, CUmemoryPool *pool) {
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&pools_lock);
  if (!find(default_pools[dev])) {
    struct vgs_pool *fresh = vgs_object_create(VGW_KIND_MEMPOOL, 0);
    result =
        fresh ? vgs_send_cuDeviceGetDefaultMemPool(fresh->object.id, vgs_device_wire(dev)) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result && fresh)
      vgs_object_destroy(fresh);
    if (!result) {
      fresh->device = dev;
      default_pools[dev] = vgs_object_handle(fresh);
    }
  }
  if (!result)
    *pool = default_pools[dev];
  pthread_mutex_unlock(&pools_lock);
  return result;
}

CUresult vgs_cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev) {
  if (!pool_out)
    return CUDA_ERROR_INVALID_VALUE;
  return vgs_device(dev) ? default_pool(dev, pool_out) : CUDA_ERROR_INVALID_DEVICE;
}

CUresult vgs_cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev) {
  if (!pool)
    return CUDA_ERROR_INVALID_VALUE;
  if (!vgs_device(dev))
    return CUDA_ERROR_INVALID_DEVICE;
  CUmemoryPool current = __atomic_load_n(&current_pools[dev], __ATOMIC_ACQUIRE);
  if (!find(current))
    return default_pool(dev, pool);
  *pool = current;
  return CUDA_SUCCESS;
}

void vgs_pool_set_current(CUdevice dev, CUmemoryPool pool) {
  __atomic_store_n(&current_pools[dev], pool, __ATOMIC_RELEASE);
}

bool vgs_pool_is_default(const struct vgs_pool *pool) {
  pthread_mutex_lock(&pools_lock);
  bool found = find(default_pools[pool->device]) == pool;
  pthread_mutex_unlock(&pools_lock);
  return found;
}

/* --- by location --- */

enum { LOCATION_DEVICE = 1, TYPE_PINNED = 1 };

/* Devices have pools of pinned memory; host and managed memory have none here. */
static CUresult check_place(const CUmemLocation *location, int type) {
  if (!location)
    return CUDA_ERROR_INVALID_VALUE;
  return location->type == LOCATION_DEVICE && type == TYPE_PINNED ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult vgs_cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location, int type) {
  CUresult result = check_place(location, type);
  return result ? result : vgs_cuDeviceGetDefaultMemPool(pool_out, location->id);
}

CUresult vgs_cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, int type) {
  CUresult result = check_place(location, type);
  return result ? result : vgs_cuDeviceGetMemPool(pool, location->id);
}

CUresult vgs_cuMemSetMemPool(CUmemLocation *location, int type, CUmemoryPool pool) {
  CUresult result = check_place(location, type);
  return result ? result : vgs_cuDeviceSetMemPool(location->id, pool);
}
