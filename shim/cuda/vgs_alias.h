/* A simulated device's memory, in this process. Where the channel passes descriptors the device's memory is a file that
 * this process made (vgw_device_memory.h), and maps. No call fails because of this: without the file, device memory is
 * in the worker alone. */
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

/* The address at which the program can read and write the memory behind a device pointer: device memory that this
 * process shares with the worker, or pinned memory. NULL: there is none, so the program must copy. The address is valid
 * until the memory is freed. The device's writes are visible after a wait for the device. */
void *vgpuHostAlias(CUdeviceptr pointer);

#endif
