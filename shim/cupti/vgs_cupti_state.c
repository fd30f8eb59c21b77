#define _GNU_SOURCE
#include "vgs_cupti_state.h"
#include "vgs_cupti_layout.h"
#include "vgs_log.h"
#include <dlfcn.h>

pthread_mutex_t vgs_cupti_delivering = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t vgs_cupti_draining = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t vgs_cupti_lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t kinds;                    /* atomic; a bit for each */
static int callback_count;                /* atomic */
static bool timed = VGS_CUPTI_MAJOR < 13; /* atomic; CUPTI 12 has no switch for events' times */
static const struct vgs_profiling *driver;
static pthread_once_t driver_once = PTHREAD_ONCE_INIT;

#define BIT(kind) ((uint64_t)1 << VGS_KIND_##kind)
#define DEVICE (BIT(MEMCPY) | BIT(MEMSET) | BIT(KERNEL) | BIT(CONCURRENT_KERNEL) | BIT(MEMCPY2) | BIT(GRAPH_TRACE))
#define EVENTS (BIT(SYNCHRONIZATION) | BIT(CUDA_EVENT)) /* CUPTI records events also where only waits are enabled */

static void find_driver(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (!library)
    library = dlopen("libcuda.so.1", RTLD_NOW);
  const struct vgs_profiling *(*table)(uint32_t) =
      library ? (const struct vgs_profiling *(*)(uint32_t))dlsym(library, "vgpuProfiling") : NULL;
  const struct vgs_profiling *found = table ? table(VGS_PROFILING_VERSION) : NULL;
  if (!library)
    vgs_log(VGS_LOG_REASON, "vgpu's libcupti finds no libcuda.so.1: nothing can be profiled");
  else if (!found)
    vgs_log(VGS_LOG_REASON, "vgpu's libcupti works with vgpu's libcuda of the same release alone, and this process has "
                            "another: nothing can be profiled. Without vgpu, take vgpu's libcupti out of LD_PRELOAD");
  driver = found;
}

const struct vgs_profiling *vgs_cupti_driver(void) {
  pthread_once(&driver_once, find_driver);
  return driver;
}

bool vgs_cupti_wants(enum vgs_cupti_kind kind) { return __atomic_load_n(&kinds, __ATOMIC_RELAXED) >> kind & 1; }
bool vgs_cupti_wants_any(void) { return __atomic_load_n(&kinds, __ATOMIC_RELAXED); }
bool vgs_cupti_wants_events(void) { return __atomic_load_n(&kinds, __ATOMIC_RELAXED) & EVENTS; }
bool vgs_cupti_wants_event_times(void) { return vgs_cupti_wants_events() && __atomic_load_n(&timed, __ATOMIC_RELAXED); }
void vgs_cupti_set_event_times(bool on) { __atomic_store_n(&timed, on, __ATOMIC_RELAXED); }
bool vgs_cupti_wants_device(void) {
  return __atomic_load_n(&kinds, __ATOMIC_RELAXED) & DEVICE || vgs_cupti_wants_event_times();
}

void vgs_cupti_set_kind(enum vgs_cupti_kind kind, bool on) {
  if (on)
    __atomic_fetch_or(&kinds, (uint64_t)1 << kind, __ATOMIC_RELAXED);
  else
    __atomic_fetch_and(&kinds, ~((uint64_t)1 << kind), __ATOMIC_RELAXED);
}

void vgs_cupti_clear_kinds(void) { __atomic_store_n(&kinds, 0, __ATOMIC_RELAXED); }

void vgs_cupti_count_callbacks(int change) { __atomic_fetch_add(&callback_count, change, __ATOMIC_RELAXED); }
bool vgs_cupti_wants_callbacks(void) { return __atomic_load_n(&callback_count, __ATOMIC_RELAXED) > 0; }

void vgs_cupti_reset_wants(void) {
  static const pthread_mutex_t unlocked = PTHREAD_MUTEX_INITIALIZER;
  vgs_cupti_delivering = vgs_cupti_draining = vgs_cupti_lock = unlocked;
  kinds = 0;
  callback_count = 0;
}
