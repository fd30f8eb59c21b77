/* Virtual memory management: what is offered of it. */
#ifndef VGS_VIRTUAL_H
#define VGS_VIRTUAL_H

#include "vgw_cuda.h"
#include <stdbool.h>
#include <stddef.h>

/* 0: properties the driver accepts and that are offered here; else what it answers. */
CUresult vgs_allocation_check(const CUmemAllocationProp *prop);

/* The part of a mapping that cuMemUnmap has removed. */
void vgs_mappings_forget(CUdeviceptr ptr, size_t size);

/* Whether access is asked for that is no device's. */
bool vgs_access_is_foreign(const CUmemAccessDesc *desc, size_t count);

#endif
