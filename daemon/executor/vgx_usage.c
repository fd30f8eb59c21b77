#include "vgx_usage.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "vgw_device_memory.h"

enum { PROCESSES_MAX = 1024, SUCCESS = 0 };
#define NOT_TOLD UINT64_MAX /* NVML_VALUE_NOT_AVAILABLE */

/* nvmlProcessInfo_v2_t, as nvmlDeviceGetComputeRunningProcesses_v2 and _v3 write it. */
struct process {
  uint32_t pid;
  uint64_t used_nbytes;
  uint32_t gpu_instance, compute_instance;
};

static char path[4096], names[1024];
static pthread_once_t loading = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of `processes` */
static struct process processes[PROCESSES_MAX];
static bool listed[VGW_SIMULATED_DEVICES_MAX]; /* NVML has listed this process: if it no longer does, nothing is left */
static void *handles[VGW_SIMULATED_DEVICES_MAX]; /* NVML's; NULL: it does not know the device */
static int (*get_processes)(void *device, uint32_t *count, struct process *found);

void vgx_usage_init(const char *library, const char *devices) {
  snprintf(path, sizeof path, "%s", library);
  snprintf(names, sizeof names, "%s", devices);
}

static void load(void) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return;
  int (*init)(void) = (int (*)(void))dlsym(library, "nvmlInit_v2");
  int (*find)(const char *, void **) = (int (*)(const char *, void **))dlsym(library, "nvmlDeviceGetHandleByUUID");
  get_processes = (__typeof__(get_processes))dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3");
  if (!get_processes)
    get_processes = (__typeof__(get_processes))dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v2");
  if (!init || !find || !get_processes || init() != SUCCESS)
    return;
  char *rest = NULL;
  uint32_t device = 0;
  for (const char *name = strtok_r(names, ",", &rest); name && device < VGW_SIMULATED_DEVICES_MAX;
       name = strtok_r(NULL, ",", &rest)) {
    if (find(name, &handles[device]) != SUCCESS)
      handles[device] = NULL;
    device++;
  }
}

bool vgx_usage_read(CUdevice device, uint64_t *nbytes) {
  uint32_t count = PROCESSES_MAX, self = (uint32_t)getpid(); /* NVML lists processes by the reader's pid namespace */
  bool told = false;
  pthread_once(&loading, load);
  if (device < 0 || device >= VGW_SIMULATED_DEVICES_MAX || !handles[device])
    return false;
  pthread_mutex_lock(&lock);
  if (get_processes(handles[device], &count, processes) == SUCCESS) {
    uint32_t i = 0;
    while (i < count && processes[i].pid != self)
      i++;
    *nbytes = i < count ? processes[i].used_nbytes : 0;
    told = (i < count || listed[device]) && *nbytes != NOT_TOLD;
    listed[device] |= told;
  }
  pthread_mutex_unlock(&lock);
  return told;
}
