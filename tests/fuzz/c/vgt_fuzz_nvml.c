/* Stands for NVML, which a worker of a card asks what its process has of the device's memory (vgx_usage.c). It is
 * loaded from the program itself; what it says changes from question to question. */
#include "vgt_fuzz_driver.h"

#include <stdint.h>
#include <string.h>
#include <unistd.h>

static _Atomic uint64_t used;

void vgt_nvml_uses(uint64_t nbytes) { used = nbytes; }

struct process {
  uint32_t pid;
  uint64_t used_nbytes;
  uint32_t gpu_instance, compute_instance;
};

__attribute__((visibility("default"))) int nvmlInit_v2(void);
__attribute__((visibility("default"))) int nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
__attribute__((visibility("default"))) int nvmlDeviceGetComputeRunningProcesses_v3(void *device, uint32_t *count,
                                                                                   struct process *processes);

int nvmlInit_v2(void) { return 0; }

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
  static int known;
  *device = &known;
  return strcmp(uuid, "GPU-1") != 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, uint32_t *count, struct process *processes) {
  static _Atomic uint32_t asked;
  uint32_t turn = ++asked % 8;
  (void)device;
  uint64_t nbytes = used;
  if (turn == 0 && !nbytes)
    return 1;
  processes[0] = (struct process){.pid = 1, .used_nbytes = 1 << 20};
  processes[1] = (struct process){.pid = (uint32_t)getpid(), .used_nbytes = nbytes ? nbytes : (uint64_t)turn << 20};
  *count = turn == 7 && !nbytes ? 1 : 2;
  return 0;
}
