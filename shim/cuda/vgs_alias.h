/* A simulated device's memory, in this process. Where the channel passes descriptors the device's memory is a file that
 * this process made (vgw_device_memory.h), and maps. Nothing here fails a call: without the file memory is the worker's
 * alone. */
#ifndef VGS_ALIAS_H
#define VGS_ALIAS_H

#include "vgw_cuda.h"
#include <stdint.h>

/* Before a device's first context in a session: make the file and hand it to the worker. */
void vgs_alias_open(CUdevice device);

/* The address at which this process finds bytes of device memory, in one allocation; NULL: none. */
void *vgs_alias_of(uint64_t address, uint64_t nbytes);

/* Exported from libcuda for programs that know of vgpu, such as its overlay for PyTorch. */

/* 1: a simulated device; 0: a real one; -1: there is no such device, or no cuInit yet. */
int vgpuDeviceIsSimulated(CUdevice device);

/* The host's address of memory that a device pointer names: device memory where this process shares it with the worker,
 * pinned memory where it is. NULL: there is none, and copies must do. It holds until the memory is freed. What the
 * device does is seen once it has been waited for. */
void *vgpuHostAlias(CUdeviceptr pointer);

#endif
