/* Finding the driver library, and initialising it at the first call that needs it. Nothing happens when the library is
 * loaded: it lies in programs that never use a GPU. */
#define _GNU_SOURCE /* dladdr */
#include "vgs_log.h"
#include "vgs_rt.h"
#include "vgs_rt_missing.h"
#include "vgs_rt_registry.h"
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct vgs_rt_driver vgs_rt_driver_legacy, vgs_rt_driver_per_thread;

typedef void (*function)(void);
typedef CUresult (*get_proc_address)(const char *, void **, int, uint64_t);
typedef CUresult (*get_proc_address_v2)(const char *, void **, int, uint64_t, int *);
enum { FLAG_DEFAULT = 0, FLAG_PER_THREAD = 2 };

_Static_assert(sizeof(struct vgs_rt_driver) == VGS_RT_DRIVER_FUNCTIONS * sizeof(function), "a table of pointers");

static CUresult not_in_driver(void) { return CUDA_ERROR_NOT_SUPPORTED; }

static get_proc_address find_v1;
static get_proc_address_v2 find_v2;

static void *find(const char *name, int version, uint64_t flags) {
  void *found = NULL;
  int status = 0;
  CUresult result = find_v2 ? find_v2(name, &found, version, flags, &status) : find_v1(name, &found, version, flags);
  return result == CUDA_SUCCESS && !status ? found : NULL;
}

static void fill_tables(void) {
  void *legacy[VGS_RT_DRIVER_FUNCTIONS], *per_thread[VGS_RT_DRIVER_FUNCTIONS];
  for (int i = 0; i < VGS_RT_DRIVER_FUNCTIONS; i++) {
    const struct vgs_rt_driver_name *name = &vgs_rt_driver_names[i];
    legacy[i] = find(name->base, name->version, FLAG_DEFAULT);
    if (!legacy[i])
      legacy[i] = (void *)not_in_driver;
    per_thread[i] = find(name->base, name->version, FLAG_PER_THREAD);
    if (!per_thread[i])
      per_thread[i] = legacy[i];
  }
  memcpy(&vgs_rt_driver_legacy, legacy, sizeof legacy);
  memcpy(&vgs_rt_driver_per_thread, per_thread, sizeof per_thread);
}

/* --- once --- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool load_tried, loaded;
static bool initialised; /* read without the lock, once it is true everything below stays */
static int init_result;
static int device_count;

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
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    vgs_log(VGS_LOG_INFO, "no driver library: %s", dlerror());
    return false;
  }
  /* Before 12.0 the name without suffix was the only one, and has no status. */
  find_v2 = (get_proc_address_v2)dlsym(library, "cuGetProcAddress_v2");
  find_v1 = (get_proc_address)dlsym(library, "cuGetProcAddress");
  if (!find_v1 && !find_v2) {
    vgs_log(VGS_LOG_INFO, "libcuda.so.1 has no cuGetProcAddress: a driver older than 11.3");
    return false; /* the library stays open: others may have pointers into it */
  }
  fill_tables();
  Dl_info where;
  if (vgs_log_enabled(VGS_LOG_INFO) && dladdr(find_v2 ? (void *)find_v2 : (void *)find_v1, &where))
    vgs_log(VGS_LOG_INFO, "runtime %d.%d of vgpu, over %s", VGS_RT_VERSION / 1000, VGS_RT_VERSION % 1000 / 10,
            where.dli_fname);
  loaded = true;
  return true;
}

bool vgs_rt_load(void) {
  int saved_errno = errno;
  pthread_mutex_lock(&lock);
  bool found = load_locked();
  pthread_mutex_unlock(&lock);
  errno = saved_errno;
  return found;
}

/* At exit, and at dlclose. Registered after the driver is open, so that it runs before the driver's own. */
static void finish(void) {
  __atomic_store_n(&init_result, CUDA_ERROR_DEINITIALIZED, __ATOMIC_RELAXED); /* for what runs after this */
  vgs_rt_registry_fini();
  vgs_rt_context_fini();
}

static int initialise(void) {
  const struct vgs_rt_driver *cu = &vgs_rt_driver_legacy;
  int version = 0, result;
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

int vgs_rt_device_count(void) { return device_count; }
