/* Stream-ordered allocation. A pool only counts: memory is allocated from the arena during the call, which returns its
 * address, and is freed when the stream reaches the free. Nothing is cached, so the reserved size equals the used size.
 *
 * Locking: pools are guarded by the runtime lock. */
#include "vgx_sim_mempool.h"

#include <stdlib.h>
#include <string.h>

#include "vgx_sim_capture.h"
#include "vgx_sim_graph_memory.h"
#include "vgx_sim_queue.h"
#include "vgx_sim_runtime.h"
#include "vgx_sim_watch_memory.h"

enum { /* CUmemPool_attribute */
       REUSE_FOLLOW_EVENT = 1,
       REUSE_OPPORTUNISTIC = 2,
       REUSE_INTERNAL = 3,
       RELEASE_THRESHOLD = 4,
       RESERVED_CURRENT = 5,
       RESERVED_HIGH = 6,
       USED_CURRENT = 7,
       USED_HIGH = 8,
};
enum { LOCATION_DEVICE = 1, ALLOCATION_PINNED = 1, ACCESS_READWRITE = 3, POSIX_FILE_DESCRIPTOR = 1 };

static bool is_pool(CUmemoryPool pool) { return pool && pool->magic == VGX_SIM_POOL && !pool->destroyed; }

void vgx_sim_pool_init(CUmemoryPool pool, struct vgx_sim_device *device) {
  *pool = (struct CUmemPoolHandle_st){
      .magic = VGX_SIM_POOL, .device = device, .reuse_event = 1, .reuse_opportunistic = 1, .reuse_internal = 1};
}

bool vgx_sim_pool_is_shared(CUmemoryPool pool) {
  vgx_sim_lock();
  bool shared = is_pool(pool) && pool->shared;
  vgx_sim_unlock();
  return shared;
}

bool vgx_sim_pool_charge_import(CUmemoryPool pool, uint64_t nbytes) {
  vgx_sim_lock();
  bool imported = is_pool(pool) && pool->imported;
  if (imported)
    pool->used_nbytes += nbytes;
  vgx_sim_unlock();
  return imported;
}

CUresult vgx_sim_pool_import(CUmemoryPool *pool, struct vgx_sim_device *device) {
  CUmemoryPool made = malloc(sizeof *made);
  if (!made)
    return CUDA_ERROR_OUT_OF_MEMORY;
  vgx_sim_pool_init(made, device);
  made->imported = true;
  *pool = made;
  return CUDA_SUCCESS;
}

static void free_if_unused(CUmemoryPool pool) {
  if (pool->destroyed && pool->used_nbytes == 0) {
    pool->magic = VGX_SIM_DEAD;
    free(pool);
  }
}

void vgx_sim_pool_uncharge_locked(CUmemoryPool pool, uint64_t nbytes) {
  pool->used_nbytes -= nbytes;
  free_if_unused(pool);
}

static CUresult allocate(CUcontext ctx, CUmemoryPool pool, size_t nbytes, CUdeviceptr *dptr) {
  vgx_sim_lock();
  CUresult result = CUDA_SUCCESS;
  if (!is_pool(pool))
    result = CUDA_ERROR_INVALID_VALUE;
  else if (pool->max_nbytes && nbytes > pool->max_nbytes - pool->used_nbytes)
    result = CUDA_ERROR_OUT_OF_MEMORY;
  else
    pool->used_nbytes += nbytes;
  vgx_sim_unlock();
  if (result != CUDA_SUCCESS)
    return result;
  struct vgx_sim_arena *arena = &pool->device->arena;
  result = vgx_sim_arena_allocate(arena, nbytes, NULL, pool, dptr);
  if (result == CUDA_ERROR_OUT_OF_MEMORY && nbytes <= arena->capacity_nbytes &&
      vgx_sim_wait_context(ctx) == CUDA_SUCCESS)
    result = vgx_sim_arena_allocate(arena, nbytes, NULL, pool, dptr); /* frees that were queued before have run */
  if (result == CUDA_SUCCESS)
    vgx_sim_watch_allocated(*dptr, nbytes);
  vgx_sim_lock();
  if (result != CUDA_SUCCESS)
    vgx_sim_pool_uncharge_locked(pool, nbytes);
  else if (pool->used_nbytes > pool->used_high_nbytes)
    pool->used_high_nbytes = pool->reserved_high_nbytes = pool->used_nbytes;
  vgx_sim_unlock();
  return result;
}

static CUresult allocate_async(CUdeviceptr *dptr, size_t nbytes, CUmemoryPool pool, bool use_current, CUstream handle) {
  CUcontext ctx;
  CUstream stream;
  CUresult result = vgx_sim_enter_stream(handle, &ctx, &stream);
  if (result != CUDA_SUCCESS)
    return result;
  if (!dptr || nbytes == 0)
    return CUDA_ERROR_INVALID_VALUE;
  vgx_sim_lock();
  if (use_current)
    pool = ctx->device->pool;
  struct vgx_sim_device *device = is_pool(pool) && !pool->imported ? pool->device : NULL;
  bool captured = vgx_sim_is_capturing_locked(stream);
  result = device ? vgx_sim_capture_check_legacy_locked(stream) : CUDA_ERROR_INVALID_VALUE;
  vgx_sim_unlock();
  if (result != CUDA_SUCCESS)
    return result;
  if (!captured)
    return allocate(ctx, pool, nbytes, dptr);
  struct vgx_sim_op *op;
  CUdeviceptr address;
  result = vgx_sim_graph_memory_reserve(device, nbytes, &op, &address);
  if (result == CUDA_SUCCESS)
    result = vgx_sim_submit(stream, op, VGX_SIM_QUEUE);
  if (result == CUDA_SUCCESS)
    *dptr = address;
  return result;
}

CUresult vgx_sim_cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream) {
  return allocate_async(dptr, bytesize, NULL, true, hStream);
}

CUresult vgx_sim_cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream) {
  return allocate_async(dptr, bytesize, pool, false, hStream);
}

struct release {
  struct vgx_sim_op op;
  struct vgx_sim_arena *arena;
  uint64_t address;
};

static CUresult run_release(struct vgx_sim_op *op) {
  struct release *release = (struct release *)op;
  struct vgx_sim_allocation a;
  vgx_sim_watch_freed(release->address);
  if (vgx_sim_arena_free(release->arena, release->address, &a) == CUDA_SUCCESS && a.pool) {
    vgx_sim_lock();
    vgx_sim_pool_uncharge_locked(a.pool, a.nbytes);
    vgx_sim_unlock();
  }
  return CUDA_SUCCESS;
}

static void destroy_release(struct vgx_sim_op *op) { free(op); }

CUresult vgx_sim_cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
  CUstream stream;
  CUresult result = vgx_sim_enter_stream(hStream, NULL, &stream);
  if (result != CUDA_SUCCESS || dptr == 0)
    return result;
  vgx_sim_lock();
  bool captured = vgx_sim_is_capturing_locked(stream);
  vgx_sim_unlock();
  struct vgx_sim_op *op;
  result = vgx_sim_graph_memory_release(dptr, captured, &op);
  if (op)
    return vgx_sim_submit(stream, op, VGX_SIM_QUEUE);
  if (result == CUDA_SUCCESS)
    result = vgx_sim_capture_forbid(stream, CUDA_ERROR_INVALID_VALUE); /* memory that does not belong to a graph */
  if (result != CUDA_SUCCESS)
    return result;
  struct vgx_sim_device *device = vgx_sim_device_of(dptr);
  if (!device)
    return CUDA_ERROR_INVALID_VALUE;
  struct release *release = calloc(1, sizeof *release);
  if (!release)
    return CUDA_ERROR_OUT_OF_MEMORY;
  release->op = (struct vgx_sim_op){.run = run_release, .destroy = destroy_release};
  release->arena = &device->arena;
  release->address = dptr;
  if (vgx_sim_arena_hide(&device->arena, dptr) != CUDA_SUCCESS) {
    free(release);
    return CUDA_ERROR_INVALID_VALUE;
  }
  return vgx_sim_submit(stream, &release->op, VGX_SIM_QUEUE);
}

CUresult vgx_sim_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps) {
  if (!pool || !poolProps || poolProps->allocType != ALLOCATION_PINNED)
    return CUDA_ERROR_INVALID_VALUE;
  if (poolProps->handleTypes & ~POSIX_FILE_DESCRIPTOR || poolProps->location.type != LOCATION_DEVICE)
    return CUDA_ERROR_NOT_SUPPORTED; /* shared by other means, or host memory */
  struct vgx_sim_device *device = vgx_sim_device_at(poolProps->location.id);
  if (!device)
    return CUDA_ERROR_INVALID_DEVICE;
  CUmemoryPool made = malloc(sizeof *made);
  if (!made)
    return CUDA_ERROR_OUT_OF_MEMORY;
  vgx_sim_pool_init(made, device);
  made->max_nbytes = poolProps->maxSize;
  made->shared = poolProps->handleTypes != 0;
  *pool = made;
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuMemPoolDestroy(CUmemoryPool pool) {
  vgx_sim_lock();
  CUresult result = is_pool(pool) && !pool->is_default ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) {
    if (pool->device->pool == pool)
      pool->device->pool = &pool->device->default_pool;
    pool->destroyed = true;
    free_if_unused(pool);
  }
  vgx_sim_unlock();
  return result;
}

CUresult vgx_sim_cuMemPoolSetAttribute(CUmemoryPool pool, int attr, void *value) {
  if (!value)
    return CUDA_ERROR_INVALID_VALUE;
  vgx_sim_lock();
  CUresult result = is_pool(pool) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) {
    switch (attr) {
    case REUSE_FOLLOW_EVENT:
      pool->reuse_event = *(const int32_t *)value;
      break;
    case REUSE_OPPORTUNISTIC:
      pool->reuse_opportunistic = *(const int32_t *)value;
      break;
    case REUSE_INTERNAL:
      pool->reuse_internal = *(const int32_t *)value;
      break;
    case RELEASE_THRESHOLD:
      pool->release_threshold = *(const uint64_t *)value;
      break;
    case RESERVED_HIGH:
    case USED_HIGH: /* only a reset to 0 is allowed */
      if (*(const uint64_t *)value != 0)
        result = CUDA_ERROR_INVALID_VALUE;
      else
        *(attr == USED_HIGH ? &pool->used_high_nbytes : &pool->reserved_high_nbytes) = pool->used_nbytes;
      break;
    default:
      result = CUDA_ERROR_INVALID_VALUE;
    }
  }
  vgx_sim_unlock();
  return result;
}

CUresult vgx_sim_cuMemPoolGetAttribute(CUmemoryPool pool, int attr, void *value) {
  if (!value)
    return CUDA_ERROR_INVALID_VALUE;
  vgx_sim_lock();
  CUresult result = is_pool(pool) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) {
    const int32_t flags[] = {pool->reuse_event, pool->reuse_opportunistic, pool->reuse_internal};
    const uint64_t amounts[] = {pool->release_threshold, pool->used_nbytes, pool->reserved_high_nbytes,
                                pool->used_nbytes, pool->used_high_nbytes};
    if (attr >= REUSE_FOLLOW_EVENT && attr <= REUSE_INTERNAL)
      *(int32_t *)value = flags[attr - REUSE_FOLLOW_EVENT];
    else if (attr >= RELEASE_THRESHOLD && attr <= USED_HIGH)
      *(uint64_t *)value = amounts[attr - RELEASE_THRESHOLD];
    else
      result = CUDA_ERROR_INVALID_VALUE;
  }
  vgx_sim_unlock();
  return result;
}

/* Nothing is kept beyond what is used, so there is nothing to trim. */
CUresult vgx_sim_cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) {
  (void)minBytesToKeep;
  return is_pool(pool) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult vgx_sim_cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev) {
  struct vgx_sim_device *device = vgx_sim_device_at(dev);
  if (!pool_out)
    return CUDA_ERROR_INVALID_VALUE;
  if (!device)
    return CUDA_ERROR_INVALID_DEVICE;
  *pool_out = &device->default_pool;
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
  struct vgx_sim_device *device = vgx_sim_device_at(dev);
  if (!device)
    return CUDA_ERROR_INVALID_DEVICE;
  vgx_sim_lock();
  CUresult result =
      is_pool(pool) && !pool->imported && pool->device == device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS)
    device->pool = pool;
  vgx_sim_unlock();
  return result;
}
