/* The driver is opened and initialised at the first call that needs it. Nothing happens when the library is loaded,
 * because many programs that load it never use a GPU. */
#include "vgs_rt_init.h"
#include "vgs_rt_api.h"
#include "vgs_rt_context.h"
#include "vgs_rt_error.h"
#include "vgs_rt_missing.h"
#include "vgs_rt_registry.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool load_tried, loaded;
static bool initialised; /* read without the lock, once it is true everything below stays */
static int init_result;

static void before_fork(void) {
  pthread_mutex_lock(&lock);
  vgs_rt_context_lock();
  vgs_rt_registry_lock();
}

static void after_fork(void) {
  vgs_rt_registry_unlock();
  vgs_rt_context_unlock();
  pthread_mutex_unlock(&lock);
}

static bool load_locked(void) {
  if (load_tried)
    return loaded;
  load_tried = true;
  pthread_atfork(before_fork, after_fork, after_fork);
  loaded = vgs_rt_open();
  return loaded;
}

bool vgs_rt_load(void) {
  int saved_errno = errno;
  pthread_mutex_lock(&lock);
  bool found = load_locked();
  pthread_mutex_unlock(&lock);
  errno = saved_errno;
  return found;
}

/* At exit, and at dlclose. Registered after the driver is open, so that it runs before the driver's exit handler. */
static void finish(void) {
  __atomic_store_n(&init_result, CUDA_ERROR_DEINITIALIZED,
                   __ATOMIC_RELAXED); /* for functions that run after this one at exit */
  vgs_rt_registry_fini();
  vgs_rt_context_fini();
}

static int initialise(void) {
  const struct vgs_rt_driver *cu = &vgs_rt_driver_legacy;
  int version = 0, device_count, result;
  if (!load_locked() || cu->cuDriverGetVersion(&version) || version / 1000 < VGS_RT_MAJOR)
    return VGS_RT_INSUFFICIENT_DRIVER;
  if ((result = cu->cuInit(0)) || (result = cu->cuDeviceGetCount(&device_count)))
    return result;
  if (device_count < 1)
    return CUDA_ERROR_NO_DEVICE;
  if ((result = vgs_rt_context_init(device_count)))
    return result;
  vgs_rt_missing_tell();
  return atexit(finish) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

int vgs_rt_enter_driver(void) {
  if (__atomic_load_n(&initialised, __ATOMIC_ACQUIRE))
    return __atomic_load_n(&init_result, __ATOMIC_RELAXED);
  int saved_errno = errno;
  pthread_mutex_lock(&lock);
  if (!initialised) {
    init_result = initialise();
    __atomic_store_n(&initialised, true, __ATOMIC_RELEASE);
  }
  int result = init_result;
  pthread_mutex_unlock(&lock);
  errno = saved_errno;
  return result;
}

int vgs_rt_enter_context(void) {
  int result = vgs_rt_enter_driver();
  return result ? result : vgs_rt_context_adopt();
}

char vgs___cudaInitModule(void **handle) {
  int result = handle ? vgs_rt_enter_context() : CUDA_ERROR_INVALID_VALUE;
  if (!result)
    result = vgs_rt_registry_load(handle);
  return vgs_rt_leave("__cudaInitModule", result) == CUDA_SUCCESS;
}
