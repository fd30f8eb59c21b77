/* Allocations that two processes share. Memory is private until it is exported; then it moves into a file, which the
 * handle's opener maps. Who never exports pays nothing.
 *
 * The handle is for other simulators alone; the file travels beside it. An opener believes nothing of either: a file
 * that could shrink would let its maker fault the opener at will. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vgx_backend.h"
#include "vgx_sim.h"
#include "vgx_sim_internal.h"

#ifndef F_GET_SEALS
#define F_GET_SEALS 1034
#define F_SEAL_SHRINK 2
#endif

enum { PAUSE_TIMEOUT_S = 20 };

struct exported { /* lies in the handle */
  uint64_t key[2];
  uint64_t nbytes;
  uint32_t device, zero;
};
_Static_assert(sizeof(struct exported) <= sizeof(CUipcMemHandle), "it lies in the handle");

CUresult vgx_sim_ipc_export(struct vgx_ipc_object *object, CUdeviceptr base) {
  CUcontext ctx;
  CUresult result = vgx_sim_enter(&ctx);
  if (result != CUDA_SUCCESS)
    return result;
  struct vgx_sim_device *device = vgx_sim_device_of(base);
  struct vgx_sim_allocation a;
  /* A pool's memory is shared with its pool, and another process's is its own to share. */
  if (!device || !vgx_sim_arena_find(&device->arena, base, &a) || a.address != base || a.pool || a.opens)
    return CUDA_ERROR_INVALID_VALUE;
  struct exported exported = {.nbytes = a.nbytes, .device = device->index};
  if (getrandom(exported.key, sizeof exported.key, 0) != sizeof exported.key)
    return CUDA_ERROR_OPERATING_SYSTEM;
  if (!vgx_sim_pause(PAUSE_TIMEOUT_S)) {
    vgx_sim_log("simulator: memory cannot be exported while a kernel goes on and on");
    return CUDA_ERROR_NOT_READY;
  }
  result = vgx_sim_arena_share(&device->arena, base, a.nbytes, &object->fd);
  vgx_sim_resume();
  if (result != CUDA_SUCCESS)
    return result;
  object->handle = (CUipcMemHandle){0};
  memcpy(&object->handle, &exported, sizeof exported);
  return CUDA_SUCCESS;
}

CUresult vgx_sim_ipc_open(CUdeviceptr *base, const struct vgx_ipc_object *object, unsigned int flags) {
  CUcontext ctx;
  CUresult result = vgx_sim_enter(&ctx);
  if (result != CUDA_SUCCESS)
    return result;
  struct exported exported;
  memcpy(&exported, &object->handle, sizeof exported);
  struct vgx_sim_device *device = vgx_sim_device_at((CUdevice)exported.device);
  struct stat st;
  int seals = fcntl(object->fd, F_GET_SEALS);
  if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || !device || exported.nbytes == 0 ||
      exported.nbytes > device->properties.memory_nbytes)
    return CUDA_ERROR_INVALID_VALUE;
  if (device != ctx->device) /* no device reaches another's memory */
    return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(object->fd, &st) != 0 || (uint64_t)st.st_size < exported.nbytes)
    return CUDA_ERROR_MAP_FAILED;
  return vgx_sim_arena_open(&device->arena, exported.key, exported.nbytes, ctx, object->fd, (uint64_t)st.st_size, base);
}

CUresult vgx_sim_cuIpcCloseMemHandle(CUdeviceptr dptr) {
  CUcontext ctx;
  CUresult result = vgx_sim_enter(&ctx);
  if (result != CUDA_SUCCESS)
    return result;
  struct vgx_sim_device *device = vgx_sim_device_of(dptr);
  struct vgx_sim_allocation a;
  if (!device || !vgx_sim_arena_find(&device->arena, dptr, &a) || a.address != dptr || !a.opens)
    return CUDA_ERROR_INVALID_VALUE;
  result = vgx_sim_wait_context(ctx); /* as cuMemFree: nothing that runs loses its memory */
  return result == CUDA_SUCCESS ? vgx_sim_arena_close(&device->arena, dptr) : result;
}
