/* Managed memory: memory that this process and the worker map at one address, as pinned memory is, which the device
 * uses in place. Nothing migrates, so it is coherent at any time, and system calls work on it. Where the channel shares
 * no memory there is none, and the attributes say so. */
#ifndef VGS_MANAGED_H
#define VGS_MANAGED_H

#include "vgs_range.h"

/* Free an allocation of cuMemAllocManaged. */
CUresult vgs_managed_free(uint64_t base);

#endif
