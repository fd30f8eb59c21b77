/* What the driver takes of a card's memory for itself: contexts, modules with their variables, code that it loads at a
 * kernel's first launch, kernels' stacks. No size is known before, so NVML is asked after: what this process has of the
 * device and is not counted otherwise counts as the driver's. That is exact after each call that makes or destroys a
 * context, a module or a library. What the driver takes at other times is found within a second, if it is much: then
 * the tenant keeps it, but gets nothing more. */
#include "vgx_limit_driver.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "vgw_device_memory.h"
#include "vgx_charge.h"
#include "vgx_limit_pool.h"
#include "vgx_usage.h"

enum { PATIENCE_MS = 50, WATCH_S = 1 };
#define MUCH (64ull << 20) /* more than the unused parts of the driver's blocks of 2 MiB, which come and go */

#define real vgx_limit_real

static atomic_bool in_use[VGW_SIMULATED_DEVICES_MAX];
static atomic_flag said = ATOMIC_FLAG_INIT;
static pthread_once_t watching = PTHREAD_ONCE_INIT;
static pthread_mutex_t measuring = PTHREAD_MUTEX_INITIALIZER; /* what is older must not be set last; taken first */

/* `tolerance`: differences up to this stay as they are. False: NVML does not tell. */
static bool measure(CUdevice device, uint64_t tolerance) {
  pthread_mutex_lock(&measuring);
  /* Else an allocation may be counted that is not there yet. */
  bool alone = vgx_charge_exclude(tolerance ? 0 : PATIENCE_MS);
  uint64_t now, first = vgx_limit_present(device);
  bool told = vgx_usage_read(device, &now);
  uint64_t second = vgx_limit_present(device); /* what was allocated or freed meanwhile is in one of both */
  if (told) {
    uint64_t most = first > second ? first : second, least = first < second ? first : second;
    uint64_t before = vgx_charge_other(device), at_least = now > most ? now - most : 0;
    uint64_t at_most = now > least ? now - least : 0;
    if (at_least > before + tolerance)
      vgx_charge_set_other(device, at_least);
    else if (alone && at_most + tolerance < before)
      vgx_charge_set_other(device, at_most);
  }
  if (alone)
    vgx_charge_include();
  pthread_mutex_unlock(&measuring);
  return told;
}

static void *watch(void *unused) {
  const struct timespec pause = {WATCH_S, 0};
  for (;;) {
    nanosleep(&pause, NULL);
    for (CUdevice device = 0; vgx_charge_is_device(device); device++)
      if (atomic_load(&in_use[device]))
        measure(device, MUCH);
  }
  return unused;
}

static void start_watching(void) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, watch, NULL) == 0)
    pthread_detach(thread);
}

CUresult vgx_limit_made(CUdevice device) {
  if (!vgx_charge_is_device(device))
    return CUDA_SUCCESS;
  atomic_store(&in_use[device], true);
  if (!measure(device, 0)) {
    if (!atomic_flag_test_and_set(&said))
      fprintf(stderr, "<4>contexts and modules do not count towards memory_mib: NVML does not list this process\n");
    return CUDA_SUCCESS;
  }
  pthread_once(&watching, start_watching);
  return vgx_charge_room(device) >= 0 ? CUDA_SUCCESS : vgx_limit_refuse(device, 0);
}

void vgx_limit_unmade(CUdevice device) {
  if (vgx_charge_is_device(device) && atomic_load(&in_use[device]))
    measure(device, 0);
}

static CUresult load_module(CUmodule *module, const void *image, uint64_t nbytes) {
  CUdevice device = vgx_limit_device();
  CUmodule made = NULL;
  CUresult result = real->load_module(&made, image, nbytes);
  if (result != CUDA_SUCCESS)
    return result;
  result = vgx_limit_made(device);
  if (result == CUDA_SUCCESS) {
    *module = made;
  } else {
    real->cuModuleUnload(made);
    vgx_limit_unmade(device);
  }
  return result;
}

static CUresult load_library(CUlibrary *library, const void *image, uint64_t nbytes) {
  CUdevice device = vgx_limit_device();
  CUlibrary made = NULL;
  CUresult result = real->load_library(&made, image, nbytes);
  if (result != CUDA_SUCCESS)
    return result;
  result = vgx_limit_made(device);
  if (result == CUDA_SUCCESS) {
    *library = made;
  } else {
    real->cuLibraryUnload(made);
    vgx_limit_unmade(device);
  }
  return result;
}

static CUresult unload_module(CUmodule module) {
  CUdevice device = vgx_limit_device();
  CUresult result = real->cuModuleUnload(module);
  vgx_limit_unmade(device);
  return result;
}

static CUresult unload_library(CUlibrary library) {
  CUdevice device = vgx_limit_device();
  CUresult result = real->cuLibraryUnload(library);
  vgx_limit_unmade(device);
  return result;
}

void vgx_limit_driver(struct vgx_backend *limited) {
#define REPLACE(function, with)                                                                                        \
  if (real->function)                                                                                                  \
    limited->function = with;
  REPLACE(load_module, load_module)
  REPLACE(load_library, load_library)
  REPLACE(cuModuleUnload, unload_module)
  REPLACE(cuLibraryUnload, unload_library)
}
