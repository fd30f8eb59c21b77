/* What NVML says that this process has of a device's memory: contexts, modules, stacks, and all that is allocated. */
#ifndef VGX_USAGE_H
#define VGX_USAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "vgw_cuda.h"

/* `library`: NVML. `devices`: what it calls each of the driver's devices (GPU-UUID, MIG-UUID), with commas between.
 * Once in a process, before vgx_usage_read(). */
void vgx_usage_init(const char *library, const char *devices);

/* False: NVML is not there, or does not tell. Any thread; NVML is loaded at the first call. */
bool vgx_usage_read(CUdevice device, uint64_t *nbytes);

#endif
