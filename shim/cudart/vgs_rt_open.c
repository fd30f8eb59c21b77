/* Finding the driver library. Its functions are looked up as a program does, by name and version. */
#define _GNU_SOURCE /* dladdr */
#include "vgs_rt_open.h"
#include "vgs_log.h"
#include "vgs_rt_layout.h"
#include <dlfcn.h>
#include <string.h>

struct vgs_rt_driver vgs_rt_driver_legacy, vgs_rt_driver_per_thread;
const struct vgs_profiling *vgs_rt_profiling;

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

bool vgs_rt_open(void) {
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
  const struct vgs_profiling *(*profiling)(uint32_t) =
      (const struct vgs_profiling *(*)(uint32_t))dlsym(library, "vgpuProfiling");
  vgs_rt_profiling = profiling ? profiling(VGS_PROFILING_VERSION) : NULL;
  Dl_info where;
  if (vgs_log_enabled(VGS_LOG_INFO) && dladdr(find_v2 ? (void *)find_v2 : (void *)find_v1, &where))
    vgs_log(VGS_LOG_INFO, "runtime %d.%d of vgpu, over %s", VGS_RT_VERSION / 1000, VGS_RT_VERSION % 1000 / 10,
            where.dli_fname);
  return true;
}
