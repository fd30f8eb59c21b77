/* Queries about addresses. */
#ifndef VGX_SIM_MEMORY_H
#define VGX_SIM_MEMORY_H

#include "vgx_sim_internal.h"
#include "vgx_sim_watch.h"

/* The allocation or mapping that holds an address, or is nearest to it; false: none. */
bool vgx_sim_look(uint64_t address, struct vgx_sim_placed *found);

/* The allocation, or the accessible mapping, that holds `address`; false when none does. */
bool vgx_sim_memory_find(struct vgx_sim_device *device, uint64_t address, struct vgx_sim_allocation *found);

/* Whether [address, address + nbytes) lies in one allocation of one device, or in registered host memory. */
bool vgx_sim_is_device_range(uint64_t address, uint64_t nbytes);
bool vgx_sim_is_registered(uint64_t address, uint64_t nbytes);

/* Functions that the client answers itself; here for tests/vgpusim/device. */
CUresult vgx_sim_cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags);

#endif
