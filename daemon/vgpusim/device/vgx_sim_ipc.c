/* Allocations that two processes share. The opener of a handle maps a piece of the device's file. Without such a file,
 * memory is private until it is exported; then it moves into a file of its own.
 *
 * What an opener reads after the exporter has freed the allocation is undefined, as in CUDA: zeros, or old contents.
 *
 * Only other simulators understand the handle; the file travels beside it. An opener checks both: with a file that can
 * shrink, its creator could make the opener fault at any time. */
#define _GNU_SOURCE
#include "vgx_sim_ipc.h"

#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vgx_sim.h"
#include "vgx_sim_arena_share.h"
#include "vgx_sim_defined.h"
#include "vgx_sim_memory.h"
#include "vgx_sim_mempool.h"
#include "vgx_sim_queue.h"
#include "vgx_sim_runtime.h"

#ifndef F_GET_SEALS
#define F_GET_SEALS 1034
#define F_SEAL_SHRINK 2
#endif

enum { PAUSE_TIMEOUT_S = 20 };

struct exported { /* stored in the CUipcMemHandle */
  uint64_t key[2];
  uint64_t nbytes;
  uint32_t device, zero; /* the device's number on the host */
  uint64_t offset;       /* of its first page in the file */
};
_Static_assert(sizeof(struct exported) <= sizeof(CUipcMemHandle), "it lies in the handle");

/* The allocation at an address, if it is this process's to share. */
static CUresult find_own(CUdeviceptr base, struct vgx_sim_allocation *a) {
  CUcontext ctx;
  CUresult result = vgx_sim_enter(&ctx);
  if (result != CUDA_SUCCESS)
    return result;
  struct vgx_sim_device *device = vgx_sim_device_of(base);
  bool own =
      device && vgx_sim_memory_find(device, base, a) && a->address == base && !a->opens && a->kind == VGX_SIM_LINEAR;
  return own ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult export(struct vgx_ipc_object *object, const struct vgx_sim_allocation *a) {
  struct vgx_sim_device *device = vgx_sim_device_of(a->address);
  struct exported exported = {.nbytes = a->nbytes, .device = device->host_number};
  if (getrandom(exported.key, sizeof exported.key, 0) != sizeof exported.key)
    return CUDA_ERROR_OPERATING_SYSTEM;
  bool moves = device->arena.file < 0; /* nothing may use moving memory */
  if (moves && !vgx_sim_pause(PAUSE_TIMEOUT_S)) {
    vgx_sim_log("simulator: memory cannot be exported while a kernel goes on and on");
    return CUDA_ERROR_NOT_READY;
  }
  CUresult result = vgx_sim_arena_share(&device->arena, a->address, a->nbytes, &object->fd, &exported.offset);
  if (moves)
    vgx_sim_resume();
  if (result != CUDA_SUCCESS)
    return result;
  object->handle = (CUipcMemHandle){0};
  memcpy(&object->handle, &exported, sizeof exported);
  return CUDA_SUCCESS;
}

/* Export an allocation. One of a pool is refused: it is shared with its pool. */
CUresult vgx_sim_ipc_export(struct vgx_ipc_object *object, CUdeviceptr base) {
  struct vgx_sim_allocation a;
  CUresult result = find_own(base, &a);
  if (result == CUDA_SUCCESS && a.pool)
    result = CUDA_ERROR_INVALID_VALUE;
  return result == CUDA_SUCCESS ? export(object, &a) : result;
}

/* Map an export. A pool's allocation is mapped anew each time, another one once for each owner. */
static CUresult open_export(CUdeviceptr *base, const struct vgx_ipc_object *object, void *owner, CUmemoryPool pool) {
  struct exported exported;
  memcpy(&exported, &object->handle, sizeof exported);
  struct vgx_sim_device *device = vgx_sim_device_of_host(exported.device);
  struct stat st;
  int seals = fcntl(object->fd, F_GET_SEALS);
  if (!device || (pool && pool->device != device) || exported.nbytes == 0 ||
      exported.nbytes > device->properties.memory_nbytes)
    return CUDA_ERROR_INVALID_VALUE;
  if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(object->fd, &st) != 0 || (uint64_t)st.st_size < exported.nbytes)
    return CUDA_ERROR_MAP_FAILED;
  struct vgx_sim_shared shared = {.key = {exported.key[0], exported.key[1]},
                                  .nbytes = exported.nbytes,
                                  .offset = exported.offset,
                                  .file_nbytes = (uint64_t)st.st_size,
                                  .pool = pool,
                                  .fd = object->fd};
  return vgx_sim_arena_open(&device->arena, &shared, owner, base);
}

CUresult vgx_sim_ipc_open(CUdeviceptr *base, const struct vgx_ipc_object *object, unsigned int flags) {
  CUcontext ctx;
  CUresult result = vgx_sim_enter(&ctx);
  if (result == CUDA_SUCCESS && flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
    result = CUDA_ERROR_INVALID_VALUE;
  return result == CUDA_SUCCESS ? open_export(base, object, ctx, NULL) : result;
}

/* --- pools --- */

struct exported_pool {   /* stored in the CUipcMemHandle */
  uint32_t device, zero; /* the device's number on the host */
};

CUresult vgx_sim_pool_export(struct vgx_ipc_object *object, CUmemoryPool pool) {
  if (!vgx_sim_pool_is_shared(pool))
    return CUDA_ERROR_INVALID_VALUE;
  struct exported_pool exported = {.device = pool->device->host_number};
  *object = (struct vgx_ipc_object){.fd = -1};
  memcpy(&object->handle, &exported, sizeof exported);
  return CUDA_SUCCESS;
}

CUresult vgx_sim_pool_open(CUmemoryPool *pool, const struct vgx_ipc_object *object) {
  struct exported_pool exported;
  memcpy(&exported, &object->handle, sizeof exported);
  struct vgx_sim_device *device = vgx_sim_device_of_host(exported.device);
  return device ? vgx_sim_pool_import(pool, device) : CUDA_ERROR_INVALID_VALUE;
}

CUresult vgx_sim_pointer_export(struct vgx_ipc_object *object, CUdeviceptr address) {
  struct vgx_sim_allocation a;
  CUresult result = find_own(address, &a);
  if (result == CUDA_SUCCESS && !vgx_sim_pool_is_shared(a.pool))
    result = CUDA_ERROR_INVALID_VALUE;
  return result == CUDA_SUCCESS ? export(object, &a) : result;
}

CUresult vgx_sim_pointer_open(CUdeviceptr *address, CUmemoryPool pool, const struct vgx_ipc_object *object) {
  CUcontext ctx;
  struct exported exported;
  CUresult result = vgx_sim_enter(&ctx);
  if (result != CUDA_SUCCESS)
    return result;
  memcpy(&exported, &object->handle, sizeof exported);
  if (!vgx_sim_pool_charge_import(pool, exported.nbytes))
    return CUDA_ERROR_INVALID_VALUE;
  result = open_export(address, object, NULL, pool);
  if (result != CUDA_SUCCESS) {
    vgx_sim_lock();
    vgx_sim_pool_uncharge_locked(pool, exported.nbytes);
    vgx_sim_unlock();
  }
  return result;
}

CUresult vgx_sim_device_file(CUdevice dev, int fd) {
  if (vgx_sim_tools)
    return CUDA_ERROR_NOT_SUPPORTED; /* the sanitizer must see what the client writes */
  struct vgx_sim_device *device = vgx_sim_device_at(dev);
  struct stat st;
  int seals = fcntl(fd, F_GET_SEALS);
  if (!device)
    return CUDA_ERROR_INVALID_DEVICE;
  if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st) != 0 || (uint64_t)st.st_size < VGW_DEVICE_MEMORY_NBYTES)
    return CUDA_ERROR_INVALID_VALUE;
  return vgx_sim_arena_adopt(&device->arena, fd);
}

CUresult vgx_sim_cuIpcCloseMemHandle(CUdeviceptr dptr) {
  CUcontext ctx;
  CUresult result = vgx_sim_enter(&ctx);
  if (result != CUDA_SUCCESS)
    return result;
  struct vgx_sim_device *device = vgx_sim_device_of(dptr);
  struct vgx_sim_allocation a;
  if (!device || !vgx_sim_memory_find(device, dptr, &a) || a.address != dptr || !a.opens)
    return CUDA_ERROR_INVALID_VALUE;
  result = vgx_sim_wait_context(ctx); /* as cuMemFree: nothing that runs loses its memory */
  return result == CUDA_SUCCESS ? vgx_sim_arena_close(&device->arena, dptr) : result;
}
