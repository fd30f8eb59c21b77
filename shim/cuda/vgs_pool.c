/* Stream-ordered allocation. */
#include "vgs_pool.h"
#include "vgs_api.h"
#include "vgs_device.h"
#include "vgs_enter.h"
#include "vgs_range.h"
#include "vgs_stream.h"
#include <string.h>

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

enum { LOCATION_DEVICE = 1, ACCESS_READ_WRITE = 3 };

/* A pool's own device always has access; there are no peers to give it to. */
CUresult vgs_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count) {
  struct vgs_pool *of = find(pool);
  if (!of || (!map && count))
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; i++) {
    if (map[i].location.type != LOCATION_DEVICE || !vgs_device(map[i].location.id))
      return CUDA_ERROR_INVALID_DEVICE;
    if (map[i].location.id == of->device && map[i].flags != ACCESS_READ_WRITE)
      return CUDA_ERROR_INVALID_VALUE;
    if (map[i].location.id != of->device && map[i].flags)
      return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}

CUresult vgs_cuMemPoolGetAccess(int *flags, CUmemoryPool pool, CUmemLocation *location) {
  struct vgs_pool *of = find(pool);
  if (!flags || !of || !location)
    return CUDA_ERROR_INVALID_VALUE;
  if (location->type != LOCATION_DEVICE || !vgs_device(location->id))
    return CUDA_ERROR_INVALID_DEVICE;
  *flags = location->id == of->device ? ACCESS_READ_WRITE : 0;
  return CUDA_SUCCESS;
}
