/* Stream-ordered allocation. */
#include "vgs_pool.h"
#include "vgs_api.h"
#include "vgs_claim.h"
#include "vgs_device.h"
#include "vgs_enter.h"
#include "vgs_range.h"
#include "vgs_stream.h"
#include <string.h>

static struct vgs_pool *find(CUmemoryPool pool) { return vgs_object_find(VGW_KIND_MEMPOOL, pool); }

static CUresult note(CUdeviceptr *dptr, CUdeviceptr address, size_t nbytes, uint32_t stream) {
  struct vgs_range range = {.base = address, .nbytes = nbytes, .kind = VGS_RANGE_POOL};
  if (vgs_range_add(&range)) {
    vgs_send_cuMemFreeAsync(address, stream, false);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *dptr = address;
  return CUDA_SUCCESS;
}

struct asked {
  size_t nbytes;
  const struct vgs_pool *pool; /* NULL: the device's own */
  uint32_t stream;
};

static CUresult make(void *argument, CUdeviceptr *address, uint64_t *nbytes) {
  const struct asked *asked = argument;
  *nbytes = asked->nbytes;
  return asked->pool ? vgs_send_cuMemAllocFromPoolAsync(address, *nbytes, asked->pool->object.id, asked->stream)
                     : vgs_send_cuMemAllocAsync(address, *nbytes, asked->stream);
}

static CUresult give_back(void *argument, CUdeviceptr address) {
  return vgs_send_cuMemFreeAsync(address, ((const struct asked *)argument)->stream, false);
}

static CUresult allocate(CUdeviceptr *dptr, struct asked asked) {
  static const struct vgs_maker maker = {make, give_back};
  CUdeviceptr address;
  uint64_t nbytes;
  CUresult result = vgs_claim_made(&maker, &asked, &address, &nbytes);
  return result ? result : note(dptr, address, nbytes, asked.stream);
}

CUresult vgs_cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream) {
  uint32_t stream;
  CUresult result = vgs_stream_id(hStream, &stream, NULL);
  if (!dptr || !bytesize)
    return CUDA_ERROR_INVALID_VALUE;
  return result ? result : allocate(dptr, (struct asked){bytesize, NULL, stream});
}

CUresult vgs_cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream) {
  uint32_t stream;
  const struct vgs_pool *from = find(pool);
  CUresult result = vgs_stream_id(hStream, &stream, NULL);
  if (!dptr || !bytesize || !from)
    return CUDA_ERROR_INVALID_VALUE;
  return result ? result : allocate(dptr, (struct asked){bytesize, from, stream});
}

CUresult vgs_cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
  struct vgs_range range;
  uint32_t stream;
  CUresult result = vgs_stream_id(hStream, &stream, NULL);
  if (result || !dptr)
    return result;
  if (!vgs_range_find(dptr, &range) || range.base != dptr || range.kind > VGS_RANGE_POOL || range.allocation ||
      !vgs_range_remove(dptr, false, &range))
    return CUDA_ERROR_INVALID_VALUE;
  return vgs_send_cuMemFreeAsync(dptr, stream, false);
}

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

CUresult vgs_cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
  struct vgs_pool *chosen = find(pool);
  if (!vgs_device(dev))
    return CUDA_ERROR_INVALID_DEVICE;
  if (!chosen || chosen->device != dev)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = vgs_send_cuDeviceSetMemPool(vgs_device_wire(dev), chosen->object.id);
  if (!result)
    __atomic_store_n(&current_pools[dev], pool, __ATOMIC_RELEASE);
  return result;
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
