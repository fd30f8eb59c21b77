/* Devices, contexts, the calling thread's current context, limits.
 *
 * A context's struct is kept until the process exits, marked destroyed, since other threads may still have it as their
 * current one; a device's primary context is one struct that is torn down and revived.
 *
 * Locking: the runtime lock, held here only for state; teardown waits for the context's work first. */
#include "vgx_sim_context.h"

#include <stdlib.h>
#include <string.h>

#include "vgx_sim_capture.h"
#include "vgx_sim_green.h"
#include "vgx_sim_heap.h"
#include "vgx_sim_marker.h"
#include "vgx_sim_mempool.h"
#include "vgx_sim_module.h"
#include "vgx_sim_queue.h"
#include "vgx_sim_runtime.h"
#include "vgx_sim_stream.h"

#define CONTEXTS_MAX 4096u        /* contexts that one process may create: their structs are never freed */
#define STACK_NBYTES_MAX 524288u  /* CUDA's limit on local memory per thread */
#define CONTEXT_FLAGS_VALID 0xffu /* CU_CTX_FLAGS_MASK */

static uint32_t context_count;

CUresult vgx_sim_configure(uint32_t index, const struct vgx_sim_device_properties *properties) {
  if (index >= VGX_SIM_DEVICES_MAX || vgx_sim_devices[index].configured || properties->memory_nbytes == 0 ||
      properties->memory_nbytes > VGW_DEVICE_MEMORY_NBYTES / 4 ||
      properties->context_nbytes >= properties->memory_nbytes)
    return CUDA_ERROR_INVALID_VALUE;
  struct vgx_sim_device *device = &vgx_sim_devices[index];
  CUresult result = vgx_sim_arena_init(&device->arena, index, properties->memory_nbytes);
  if (result != CUDA_SUCCESS)
    return result;
  device->index = device->host_number = index;
  device->properties = *properties;
  vgx_sim_pool_init(&device->default_pool, device);
  device->default_pool.is_default = true;
  device->pool = &device->default_pool;
  device->configured = true;
  return CUDA_SUCCESS;
}

void vgx_sim_set_host_number(uint32_t index, uint32_t number) { vgx_sim_devices[index].host_number = number; }

void vgx_sim_set_epoch(uint32_t epoch) {
  for (uint32_t i = 0; i < VGX_SIM_DEVICES_MAX; i++)
    if (vgx_sim_devices[i].configured)
      vgx_sim_arena_start(&vgx_sim_devices[i].arena, epoch);
}

void vgx_sim_set_ledger(struct vgw_ledger *ledger, uint32_t row, uint64_t limit_nbytes) {
  for (uint32_t i = 0; i < VGX_SIM_DEVICES_MAX; i++)
    if (vgx_sim_devices[i].configured)
      vgx_sim_arena_join(&vgx_sim_devices[i].arena,
                         (struct vgx_sim_share){ledger, row, vgx_sim_devices[i].host_number, limit_nbytes});
}

static bool flags_valid(unsigned int flags) {
  unsigned int schedule = flags & 7u; /* automatic, spin, yield or blocking: at most one */
  return !(flags & ~CONTEXT_FLAGS_VALID) && (schedule & (schedule - 1)) == 0;
}

/* Make `ctx` (new or revived) usable. Runtime lock held. */
static void start_context(CUcontext ctx, struct vgx_sim_device *device, unsigned int flags) {
  ctx->device = device;
  ctx->flags = flags;
  ctx->destroyed = false;
  ctx->sticky = CUDA_SUCCESS;
  ctx->peers = 0;
  memcpy(ctx->limits, device->properties.limits, sizeof ctx->limits);
  vgx_sim_stream_init(&ctx->legacy, ctx, CU_STREAM_DEFAULT, 0);
  vgx_sim_stream_init(&ctx->per_thread, ctx, CU_STREAM_DEFAULT, 0);
  vgx_sim_stream_init(&ctx->hub, ctx, CU_STREAM_NON_BLOCKING, 0);
}

/* Add a context on `device`, or revive `revived`. OUT_OF_MEMORY: of the device or of the host. */
static CUresult make_context(struct vgx_sim_device *device, unsigned int flags, CUcontext revived, CUcontext *made) {
  if (device->sticky != CUDA_SUCCESS)
    return device->sticky;
  if (!vgx_sim_arena_charge(&device->arena, device->properties.context_nbytes))
    return CUDA_ERROR_OUT_OF_MEMORY;
  CUcontext ctx = revived;
  if (!ctx) {
    ctx = context_count < CONTEXTS_MAX ? calloc(1, sizeof *ctx) : NULL;
    if (!ctx) {
      vgx_sim_arena_uncharge(&device->arena, device->properties.context_nbytes);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    context_count++;
    vgx_sim_contexts_add_locked(ctx);
  }
  start_context(ctx, device, flags);
  *made = ctx;
  return CUDA_SUCCESS;
}

/* Wait for a context's work, then free what it owns. Only the first caller does so; false: it was destroyed already. */
static bool end_context(CUcontext ctx) {
  vgx_sim_lock();
  if (ctx->destroyed) {
    vgx_sim_unlock();
    return false;
  }
  ctx->destroyed = ctx->ending = true; /* from here on nothing is submitted to it */
  while (ctx->loading)
    vgx_sim_wait_progress_locked();
  vgx_sim_unlock();
  vgx_sim_wait_context(ctx);
  vgx_sim_unload_modules(ctx);
  vgx_sim_lock();
  for (CUstream s = ctx->streams; s; s = s->next) {
    vgx_sim_captured_clear_locked(&s->captured);
    s->magic = VGX_SIM_DEAD; /* tombstones */
  }
  vgx_sim_captured_clear_locked(&ctx->per_thread.captured);
  ctx->streams = NULL;
  for (CUevent e = ctx->events; e; e = e->next) {
    e->magic = VGX_SIM_DEAD;
    vgx_sim_captured_clear_locked(&e->captured);
    if (e->marker)
      vgx_sim_marker_unref_locked(e->marker);
    e->marker = NULL; /* graphs' nodes may hold the event */
  }
  ctx->events = NULL;
  if (ctx->copied)
    vgx_sim_marker_unref_locked(ctx->copied);
  ctx->copied = NULL;
  if (ctx->held)
    vgx_sim_marker_unref_locked(ctx->held);
  ctx->held = NULL;
  vgx_sim_green_end_locked(ctx);
  struct vgx_sim_heap *heap = ctx->heap;
  ctx->heap = NULL;
  vgx_sim_unlock();
  vgx_sim_heap_destroy(heap);
  vgx_sim_arena_free_owner(&ctx->device->arena, ctx);
  vgx_sim_arena_uncharge(&ctx->device->arena, ctx->device->properties.context_nbytes);
  vgx_sim_lock();
  ctx->ending = false;
  vgx_sim_notify_locked();
  vgx_sim_unlock();
  return true;
}

CUresult vgx_sim_cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev) {
  struct vgx_sim_device *device = vgx_sim_device_at(dev);
  if (!pctx)
    return CUDA_ERROR_INVALID_VALUE;
  if (!device)
    return CUDA_ERROR_INVALID_DEVICE;
  vgx_sim_lock();
  while (device->primary &&
         device->primary->ending) /* another thread is destroying it: wait until its work has ended */
    vgx_sim_wait_progress_locked();
  CUresult result = device->sticky;
  if (result == CUDA_SUCCESS && (!device->primary || device->primary->destroyed))
    result = make_context(device, device->primary_flags, device->primary, &device->primary);
  if (result == CUDA_SUCCESS) {
    device->primary->primary = true;
    device->primary_refs++;
    *pctx = device->primary;
  }
  vgx_sim_unlock();
  return result;
}

CUresult vgx_sim_cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  struct vgx_sim_device *device = vgx_sim_device_at(dev);
  if (!device)
    return CUDA_ERROR_INVALID_DEVICE;
  vgx_sim_lock();
  if (device->primary_refs == 0) {
    vgx_sim_unlock();
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  CUcontext last = --device->primary_refs == 0 ? device->primary : NULL;
  vgx_sim_unlock();
  if (last)
    end_context(last);
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  struct vgx_sim_device *device = vgx_sim_device_at(dev);
  if (!device)
    return CUDA_ERROR_INVALID_DEVICE;
  vgx_sim_lock();
  CUcontext primary = device->primary;
  device->primary_refs = 0;
  vgx_sim_unlock();
  if (primary)
    end_context(primary);
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
  struct vgx_sim_device *device = vgx_sim_device_at(dev);
  if (!device)
    return CUDA_ERROR_INVALID_DEVICE;
  if (!flags_valid(flags))
    return CUDA_ERROR_INVALID_VALUE;
  vgx_sim_lock();
  device->primary_flags = flags;
  if (device->primary)
    device->primary->flags = flags;
  vgx_sim_unlock();
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active) {
  struct vgx_sim_device *device = vgx_sim_device_at(dev);
  if (!device)
    return CUDA_ERROR_INVALID_DEVICE;
  if (!flags || !active)
    return CUDA_ERROR_INVALID_VALUE;
  vgx_sim_lock();
  *flags = device->primary_flags;
  *active = device->primary_refs > 0;
  vgx_sim_unlock();
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev) {
  struct vgx_sim_device *device = vgx_sim_device_at(dev);
  if (!device)
    return CUDA_ERROR_INVALID_DEVICE;
  if (!pctx || !flags_valid(flags))
    return CUDA_ERROR_INVALID_VALUE;
  vgx_sim_lock();
  CUresult result = make_context(device, flags, NULL, pctx);
  if (result == CUDA_SUCCESS)
    vgx_sim_set_current(*pctx);
  vgx_sim_unlock();
  return result;
}

CUresult vgx_sim_cuCtxDestroy_v2(CUcontext ctx) {
  if (!ctx || ctx->primary || ctx->green)
    return CUDA_ERROR_INVALID_CONTEXT;
  if (!end_context(ctx))
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (vgx_sim_current_name() == ctx)
    vgx_sim_set_current(NULL);
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuCtxSetCurrent(CUcontext ctx) {
  vgx_sim_set_current(ctx);
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuCtxGetCurrent(CUcontext *pctx) {
  if (!pctx)
    return CUDA_ERROR_INVALID_VALUE;
  *pctx = vgx_sim_current_name();
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuCtxSynchronize(void) {
  CUcontext ctx;
  CUresult result = vgx_sim_enter(&ctx);
  return result == CUDA_SUCCESS ? vgx_sim_wait_context(ctx) : result;
}

/* 0 if the device has the limit; else the driver's error. */
static CUresult limit_known(CUcontext ctx, int limit) {
  if (limit < 0 || (uint32_t)limit >= VGX_SIM_LIMITS_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  return ctx->device->properties.limits[limit] == UINT64_MAX ? CUDA_ERROR_UNSUPPORTED_LIMIT : CUDA_SUCCESS;
}

CUresult vgx_sim_cuCtxSetLimit(int limit, size_t value) {
  CUcontext ctx;
  CUresult result = vgx_sim_enter(&ctx);
  if (result == CUDA_SUCCESS)
    result = limit_known(ctx, limit);
  if (result != CUDA_SUCCESS)
    return result;
  if (limit == CU_LIMIT_STACK_SIZE && value > STACK_NBYTES_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  if ((limit == CU_LIMIT_PRINTF_FIFO_SIZE || limit == CU_LIMIT_MALLOC_HEAP_SIZE) &&
      value > ctx->device->properties.memory_nbytes)
    return CUDA_ERROR_OUT_OF_MEMORY;
  int32_t most = vgx_sim_attribute(ctx->device, VGX_SIM_MAX_PERSISTING_L2, 0);
  if (limit == CU_LIMIT_PERSISTING_L2_CACHE_SIZE && value > (uint64_t)most)
    value = (uint64_t)most;
  vgx_sim_lock();
  /* A heap in use keeps its size, as the driver demands. */
  if (limit == CU_LIMIT_MALLOC_HEAP_SIZE && ctx->heap)
    result = CUDA_ERROR_INVALID_VALUE;
  else
    ctx->limits[limit] = value;
  vgx_sim_unlock();
  return result;
}

CUresult vgx_sim_cuCtxGetLimit(size_t *pvalue, int limit) {
  CUcontext ctx;
  CUresult result = vgx_sim_enter(&ctx);
  if (result == CUDA_SUCCESS)
    result = pvalue ? limit_known(ctx, limit) : CUDA_ERROR_INVALID_VALUE;
  if (result != CUDA_SUCCESS)
    return result;
  vgx_sim_lock();
  *pvalue = ctx->limits[limit];
  vgx_sim_unlock();
  return CUDA_SUCCESS;
}
