/* Addresses that are free in this process and in the worker. */
#ifndef VGS_APART_PLACE_H
#define VGS_APART_PLACE_H

#include "vgw_cuda.h"
#include <stdint.h>

/* Reserve and claim addresses that are free in this process and in the worker. Other errors than OUT_OF_MEMORY: the
 * worker reserves none. */
CUresult vgs_apart_reserve(CUdeviceptr *address, uint64_t nbytes, uint64_t alignment, CUdeviceptr near);

#endif
