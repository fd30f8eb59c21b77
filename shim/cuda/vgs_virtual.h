/* Virtual memory management: what is offered of it. */
#ifndef VGS_VIRTUAL_H
#define VGS_VIRTUAL_H

#include "vgs_objects.h"
#include <stdbool.h>
#include <stddef.h>

/* 0: properties the driver accepts and that are offered here; else what it answers. */
CUresult vgs_allocation_check(const CUmemAllocationProp *prop);

/* One handle less; the last of handles and mappings frees the memory. INVALID_VALUE: there is none. */
CUresult vgs_allocation_release(CUmemGenericAllocationHandle handle);

/* Whether the program has a handle of it still; else only mappings have it. */
bool vgs_allocation_has_handle(const struct vgs_allocation *allocation);

/* What cuMemMap has mapped becomes known; if that fails, it is unmapped. */
CUresult vgs_mapping_add(const struct vgs_allocation *allocation, CUdeviceptr ptr, size_t size);

/* The part of a mapping that cuMemUnmap has removed. */
void vgs_mappings_remove(CUdeviceptr ptr, size_t size);

/* Whether access is asked for that is no device's. */
bool vgs_access_is_foreign(const CUmemAccessDesc *desc, size_t count);

#endif
