/* Which device and context a thread works on. A context that the program made current through the driver is used
 * unchanged; else the primary context of the thread's device is made current. */
#include "vgs_rt_context.h"
#include "vgs_rt_api.h"
#include "vgs_rt_registry.h"
#include <pthread.h>
#include <stdlib.h>

struct primary {
  CUcontext context; /* the same handle after a reset */
  bool retained;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct primary *primaries;
static int primary_count;
static int device_count;        /* still valid after vgs_rt_context_fini */
static unsigned generation = 1; /* rises with each reset: threads must check their context again */
static _Thread_local unsigned seen_generation;
static _Thread_local int chosen_device; /* by cudaSetDevice; 0 before */

void vgs_rt_context_lock(void) { pthread_mutex_lock(&lock); }
void vgs_rt_context_unlock(void) { pthread_mutex_unlock(&lock); }

int vgs_rt_context_init(int count) {
  primaries = calloc((size_t)count, sizeof *primaries);
  if (!primaries)
    return CUDA_ERROR_OUT_OF_MEMORY;
  primary_count = device_count = count;
  return CUDA_SUCCESS;
}

int vgs_rt_device_count(void) { return device_count; }

void vgs_rt_context_fini(void) {
  pthread_mutex_lock(&lock);
  for (int i = 0; i < primary_count; i++)
    if (primaries[i].retained)
      vgs_rt_driver_legacy.cuDevicePrimaryCtxRelease_v2(i);
  free(primaries);
  primaries = NULL;
  primary_count = 0;
  pthread_mutex_unlock(&lock);
}

static int retain_locked(int device) {
  if (device < 0 || device >= primary_count)
    return CUDA_ERROR_INVALID_DEVICE;
  struct primary *primary = &primaries[device];
  if (primary->retained)
    return CUDA_SUCCESS;
  int result = vgs_rt_driver_legacy.cuDevicePrimaryCtxRetain(&primary->context, device);
  primary->retained = result == CUDA_SUCCESS;
  return result;
}

int vgs_rt_primary(int device, CUcontext *context) {
  pthread_mutex_lock(&lock);
  int result = retain_locked(device);
  if (result == CUDA_SUCCESS)
    *context = primaries[device].context;
  pthread_mutex_unlock(&lock);
  return result;
}

/* Make the primary context of `device` current. */
static int use_device(int device) {
  CUcontext context;
  int result = vgs_rt_primary(device, &context);
  if (result == CUDA_SUCCESS)
    result = vgs_rt_driver_legacy.cuCtxSetCurrent(context);
  if (result == CUDA_SUCCESS)
    seen_generation = __atomic_load_n(&generation, __ATOMIC_RELAXED);
  return result;
}

/* The device of a primary context that this library retained, else the device that the thread chose. */
static int device_of(CUcontext context) {
  int device = chosen_device;
  pthread_mutex_lock(&lock);
  for (int i = 0; context && i < primary_count; i++)
    if (primaries[i].context == context)
      device = i;
  pthread_mutex_unlock(&lock);
  return device;
}

/* Use a context that the program or another runtime made current. A primary one is retained, so that it stays alive
 * when they release it. */
static int share(const struct vgs_rt_driver *cu) {
  CUcontext primary;
  int device, active = 0;
  unsigned flags;
  int result = cu->cuCtxGetDevice(&device);
  if (!result)
    result = cu->cuDevicePrimaryCtxGetState(device, &flags, &active);
  if (!result && active)
    result = vgs_rt_primary(device, &primary);
  if (!result)
    seen_generation = __atomic_load_n(&generation, __ATOMIC_RELAXED);
  return result;
}

/* The thread's first call, or its first after a reset. `current` may have ended: by a reset, or when its last holder
 * released it, such as this library before it was unloaded and loaded again. */
static int adopt(CUcontext current) {
  const struct vgs_rt_driver *cu = &vgs_rt_driver_legacy;
  unsigned version;
  bool alive = current && cu->cuCtxGetApiVersion(current, &version) == CUDA_SUCCESS;
  int result = alive ? share(cu) : use_device(device_of(current));
  return result ? result : vgs_rt_registry_prepare();
}

int vgs_rt_context_adopt(void) {
  CUcontext current = NULL;
  int result = vgs_rt_driver_legacy.cuCtxGetCurrent(&current);
  if (result)
    return result;
  if (current && seen_generation == __atomic_load_n(&generation, __ATOMIC_RELAXED))
    return CUDA_SUCCESS;
  return adopt(current);
}

int vgs_rt_current_device(int *device) {
  CUcontext current = NULL;
  CUdevice found;
  int result = vgs_rt_driver_legacy.cuCtxGetCurrent(&current);
  if (result)
    return result;
  if (current && vgs_rt_driver_legacy.cuCtxGetDevice(&found) == CUDA_SUCCESS)
    *device = found;
  else
    *device = chosen_device;
  return CUDA_SUCCESS;
}

int vgs_cudaGetDevice(const struct vgs_rt_driver *cu, int *device) {
  (void)cu;
  return device ? vgs_rt_current_device(device) : CUDA_ERROR_INVALID_VALUE;
}

/* From 12.0 on this initialises the device's context; before, the first call that needs it does. */
int vgs_cudaSetDevice(const struct vgs_rt_driver *cu, int device) {
  if (device < 0 || device >= vgs_rt_device_count())
    return CUDA_ERROR_INVALID_DEVICE;
  chosen_device = device;
  pthread_mutex_lock(&lock);
  bool retained = device < primary_count && primaries[device].retained;
  pthread_mutex_unlock(&lock);
  if (VGS_RT_MAJOR < 12 && !retained)
    return cu->cuCtxSetCurrent(NULL);
  int result = use_device(device);
  return result ? result : vgs_rt_registry_prepare();
}

int vgs_cudaDeviceReset(const struct vgs_rt_driver *cu) {
  int device = 0;
  int result = vgs_rt_current_device(&device);
  if (result)
    return result;
  pthread_mutex_lock(&lock);
  result = cu->cuDevicePrimaryCtxReset_v2(device);
  if (result == CUDA_SUCCESS && device < primary_count) {
    primaries[device].retained = false;
    __atomic_add_fetch(&generation, 1, __ATOMIC_RELAXED);
  }
  pthread_mutex_unlock(&lock);
  return result;
}

#if VGS_RT_MAJOR < 13
int vgs_cudaThreadExit(const struct vgs_rt_driver *cu) { return vgs_cudaDeviceReset(cu); }
#endif

int vgs_cudaSetDeviceFlags(const struct vgs_rt_driver *cu, unsigned int flags) {
  int device = 0;
  int result = vgs_rt_current_device(&device);
  return result ? result : cu->cuDevicePrimaryCtxSetFlags_v2(device, flags);
}

int vgs_cudaGetDeviceFlags(const struct vgs_rt_driver *cu, unsigned int *flags) {
  enum { MAP_HOST = 8 };
  int device = 0, active;
  if (!flags)
    return CUDA_ERROR_INVALID_VALUE;
  int result = vgs_rt_current_device(&device);
  unsigned found;
  if (!result)
    result = cu->cuDevicePrimaryCtxGetState(device, &found, &active);
  /* Mapping host memory is always enabled. Before 12, cudaSetDevice leaves the context inactive, and the flag is not
   * yet returned. */
  if (!result)
    *flags = found | (VGS_RT_MAJOR >= 12 || active ? MAP_HOST : 0);
  return result;
}

int vgs_cudaDeviceEnablePeerAccess(const struct vgs_rt_driver *cu, int peerDevice, unsigned int flags) {
  CUcontext peer;
  int result = vgs_rt_primary(peerDevice, &peer);
  return result ? result : cu->cuCtxEnablePeerAccess(peer, flags);
}

int vgs_cudaDeviceDisablePeerAccess(const struct vgs_rt_driver *cu, int peerDevice) {
  CUcontext peer;
  int result = vgs_rt_primary(peerDevice, &peer);
  return result ? result : cu->cuCtxDisablePeerAccess(peer);
}

#if VGS_RT_MAJOR >= 12
int vgs_cudaInitDevice(const struct vgs_rt_driver *cu, int device, unsigned int deviceFlags, unsigned int flags) {
  enum { FLAGS_ARE_VALID = 1 };
  CUcontext context;
  if (device < 0 || device >= vgs_rt_device_count())
    return CUDA_ERROR_INVALID_DEVICE;
  int result = flags & FLAGS_ARE_VALID ? cu->cuDevicePrimaryCtxSetFlags_v2(device, deviceFlags) : CUDA_SUCCESS;
  return result ? result : vgs_rt_primary(device, &context);
}
#endif
