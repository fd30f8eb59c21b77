/* Device allocations, registered host memory, what an address is.
 *
 * Registered memory is memory of this process at the client's own address (the executor maps it there), so host and
 * device address are one and kernels reach it directly. Freeing waits for all work of the owner's context: nothing that
 * runs loses its memory.
 *
 * Locking: `registered_lock` guards the table of registered ranges (leaf). */
#define _GNU_SOURCE
#include "vgx_sim_memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "vgx_sim_graph_memory.h"
#include "vgx_sim_mempool.h"
#include "vgx_sim_queue.h"
#include "vgx_sim_runtime.h"
#include "vgx_sim_virtual.h"
#include "vgx_sim_watch_memory.h"

#define PITCH_NBYTES 512u
#define REGISTERED_MAX 65536u
#define PAGE_NBYTES 4096u

struct registered {
  uint64_t address, nbytes;
};
static pthread_mutex_t registered_lock = PTHREAD_MUTEX_INITIALIZER;
static struct registered *registered; /* sorted */
static size_t registered_count, registered_room;

/* Index of the first range that ends above `address`. */
static size_t registered_bound(uint64_t address) {
  size_t low = 0, high = registered_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (registered[middle].address + registered[middle].nbytes <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static bool find_registered(uint64_t address, struct registered *found) {
  pthread_mutex_lock(&registered_lock);
  size_t i = registered_bound(address);
  bool hit = i < registered_count && registered[i].address <= address;
  if (hit)
    *found = registered[i];
  pthread_mutex_unlock(&registered_lock);
  return hit;
}

bool vgx_sim_is_registered(uint64_t address, uint64_t nbytes) {
  struct registered r;
  return find_registered(address, &r) && nbytes <= r.nbytes - (address - r.address);
}

bool vgx_sim_memory_find(struct vgx_sim_device *device, uint64_t address, struct vgx_sim_allocation *found) {
  return vgx_sim_arena_find(&device->arena, address, found) &&
         (found->kind != VGX_SIM_RESERVED || vgx_sim_virtual_find(address, found));
}

bool vgx_sim_is_device_range(uint64_t address, uint64_t nbytes) {
  struct vgx_sim_device *device = vgx_sim_device_of(address);
  struct vgx_sim_allocation a;
  if (device)
    return vgx_sim_memory_find(device, address, &a) && nbytes <= a.nbytes - (address - a.address);
  return vgx_sim_is_registered(address, nbytes);
}

bool vgx_sim_look(uint64_t address, struct vgx_sim_placed *found) {
  struct vgx_sim_device *device = vgx_sim_device_of(address);
  struct vgx_sim_allocation a;
  struct registered r;
  *found = (struct vgx_sim_placed){0};
  if (device) {
    /* An allocation that is being freed still exists for the kernels before its cuMemFreeAsync. */
    if (!vgx_sim_memory_find(device, address, &a) &&
        (!vgx_sim_arena_nearest(&device->arena, address, &a) || a.kind != VGX_SIM_LINEAR))
      return false;
    bool mapped = a.kind != VGX_SIM_LINEAR; /* whole pages */
    *found = (struct vgx_sim_placed){a.address, a.nbytes, mapped ? a.address : a.pages,
                                     mapped ? a.address + a.nbytes : a.pages_end, &device->arena.generation};
    return true;
  }
  if (!find_registered(address, &r))
    return false;
  *found = (struct vgx_sim_placed){r.address, r.nbytes, r.address, r.address + r.nbytes, NULL};
  return true;
}

CUresult vgx_sim_cuMemGetInfo_v2(size_t *free, size_t *total) {
  CUcontext ctx;
  CUresult result = vgx_sim_enter(&ctx);
  if (result != CUDA_SUCCESS)
    return result;
  if (free)
    *free = vgx_sim_arena_available(&ctx->device->arena);
  if (total)
    *total = vgx_sim_arena_visible(&ctx->device->arena);
  return CUDA_SUCCESS;
}

uint64_t vgx_sim_memory_used(uint32_t index) {
  struct vgx_sim_device *device = vgx_sim_device_at((CUdevice)index);
  return device ? vgx_sim_arena_used(&device->arena) : 0;
}

CUresult vgx_sim_cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize) {
  CUcontext ctx;
  CUresult result = vgx_sim_enter(&ctx);
  if (result != CUDA_SUCCESS)
    return result;
  if (!dptr || bytesize == 0)
    return CUDA_ERROR_INVALID_VALUE;
  result = vgx_sim_arena_allocate(&ctx->device->arena, bytesize, ctx, NULL, dptr);
  if (result == CUDA_SUCCESS)
    vgx_sim_watch_allocated(*dptr, bytesize);
  return result;
}

CUresult vgx_sim_cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
                                    unsigned int ElementSizeBytes) {
  size_t pitch, nbytes;
  if (!pPitch || (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16))
    return CUDA_ERROR_INVALID_VALUE;
  if (__builtin_add_overflow(WidthInBytes, PITCH_NBYTES - 1, &pitch))
    return CUDA_ERROR_INVALID_VALUE;
  pitch -= pitch % PITCH_NBYTES;
  if (__builtin_mul_overflow(pitch, Height, &nbytes))
    return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = vgx_sim_cuMemAlloc_v2(dptr, nbytes);
  if (result == CUDA_SUCCESS)
    *pPitch = pitch;
  return result;
}

CUresult vgx_sim_cuMemFree_v2(CUdeviceptr dptr) {
  CUcontext ctx;
  CUresult result = vgx_sim_enter(&ctx);
  if (result != CUDA_SUCCESS || dptr == 0)
    return result;
  struct vgx_sim_device *device = vgx_sim_device_of(dptr);
  struct vgx_sim_allocation a;
  if (!device || !vgx_sim_memory_find(device, dptr, &a) || a.address != dptr || (a.opens && !a.pool) ||
      a.kind != VGX_SIM_LINEAR)
    return CUDA_ERROR_INVALID_VALUE;
  struct vgx_sim_op *op;
  CUcontext owner = a.owner ? a.owner : ctx;
  if (owner != ctx)
    vgx_sim_wait_context(owner);
  result = vgx_sim_wait_context(ctx);
  if (result == CUDA_SUCCESS)
    result = vgx_sim_graph_memory_release(dptr, false, &op);
  if (result != CUDA_SUCCESS)
    return result;
  if (op) {
    op->run(op);
    op->destroy(op);
    return CUDA_SUCCESS;
  }
  result = vgx_sim_arena_free(&device->arena, dptr, &a);
  if (result == CUDA_SUCCESS)
    vgx_sim_watch_freed(dptr);
  if (result == CUDA_SUCCESS && a.pool) {
    vgx_sim_lock();
    vgx_sim_pool_uncharge_locked(a.pool, a.nbytes);
    vgx_sim_unlock();
  }
  return result;
}

/* Whether every page of the range is mapped in this process. */
static bool is_mapped(uint64_t address, uint64_t nbytes) {
  uint64_t first = address & ~(uint64_t)(PAGE_NBYTES - 1);
  return msync((void *)first, address - first + nbytes, MS_ASYNC) == 0;
}

CUresult vgx_sim_cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags) {
  CUcontext ctx;
  CUresult result = vgx_sim_enter(&ctx);
  if (result != CUDA_SUCCESS)
    return result;
  uint64_t address = (uint64_t)p, end;
  if (!p || bytesize == 0 || Flags & ~0xfu || __builtin_add_overflow(address, bytesize, &end) ||
      vgx_sim_device_of(address) || !is_mapped(address, bytesize))
    return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&registered_lock);
  size_t i = registered_bound(address);
  if (i < registered_count && registered[i].address < end) {
    result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  } else if (registered_count == registered_room) {
    size_t room = registered_room ? registered_room * 2 : 64;
    void *grown = room <= REGISTERED_MAX ? realloc(registered, room * sizeof *registered) : NULL;
    if (grown) {
      registered = grown;
      registered_room = room;
    } else {
      result = CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  if (result == CUDA_SUCCESS) {
    memmove(&registered[i + 1], &registered[i], (registered_count - i) * sizeof *registered);
    registered[i] = (struct registered){address, bytesize};
    registered_count++;
  }
  pthread_mutex_unlock(&registered_lock);
  return result;
}

CUresult vgx_sim_cuMemHostUnregister(void *p) {
  CUcontext ctx;
  CUresult result = vgx_sim_enter(&ctx);
  if (result != CUDA_SUCCESS)
    return result;
  struct registered r;
  if (!find_registered((uint64_t)p, &r) || r.address != (uint64_t)p)
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  vgx_sim_wait_context(ctx); /* queued copies read it still */
  result = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  pthread_mutex_lock(&registered_lock);
  size_t i = registered_bound((uint64_t)p);
  if (i < registered_count && registered[i].address == (uint64_t)p) {
    registered_count--;
    memmove(&registered[i], &registered[i + 1], (registered_count - i) * sizeof *registered);
    result = CUDA_SUCCESS;
  }
  pthread_mutex_unlock(&registered_lock);
  return result;
}

CUresult vgx_sim_cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags) {
  CUcontext ctx;
  CUresult result = vgx_sim_enter(&ctx);
  if (result != CUDA_SUCCESS)
    return result;
  if (!pdptr || Flags || !vgx_sim_is_registered((uint64_t)p, 1))
    return CUDA_ERROR_INVALID_VALUE;
  *pdptr = (CUdeviceptr)p;
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuPointerGetAttribute(void *data, int attribute, CUdeviceptr ptr) {
  if (!data)
    return CUDA_ERROR_INVALID_VALUE;
  struct vgx_sim_device *device = vgx_sim_device_of(ptr);
  struct vgx_sim_allocation a = {0};
  struct registered r;
  bool on_device = device && vgx_sim_memory_find(device, ptr, &a) && !vgx_sim_graph_memory_is_idle(a.address);
  if (!on_device) {
    if (device || !find_registered(ptr, &r))
      return CUDA_ERROR_INVALID_VALUE;
    a.address = r.address;
    a.nbytes = r.nbytes;
  }
  switch (attribute) {
  case CU_POINTER_ATTRIBUTE_CONTEXT:
    *(CUcontext *)data = a.owner;
    return CUDA_SUCCESS;
  case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    *(uint32_t *)data = on_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    return CUDA_SUCCESS;
  case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    *(CUdeviceptr *)data = ptr;
    return CUDA_SUCCESS;
  case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    if (on_device)
      return CUDA_ERROR_INVALID_VALUE;
    *(void **)data = (void *)ptr;
    return CUDA_SUCCESS;
  case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    *(bool *)data = false;
    return CUDA_SUCCESS;
  case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    *(int32_t *)data = on_device ? (int32_t)device->index : 0;
    return CUDA_SUCCESS;
  case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    *(CUdeviceptr *)data = a.address;
    return CUDA_SUCCESS;
  case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    *(size_t *)data = a.nbytes;
    return CUDA_SUCCESS;
  case CU_POINTER_ATTRIBUTE_MAPPED:
    *(bool *)data = true;
    return CUDA_SUCCESS;
  case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    *(CUmemoryPool *)data = a.pool;
    return CUDA_SUCCESS;
  default:
    return CUDA_ERROR_NOT_SUPPORTED;
  }
}
