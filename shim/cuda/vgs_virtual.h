/* Virtual memory management: the supported part. */
#ifndef VGS_VIRTUAL_H
#define VGS_VIRTUAL_H

#include "vgs_objects.h"
#include <stdbool.h>
#include <stddef.h>

/* 0: the driver accepts the properties and they are offered here; else the driver's error. */
CUresult vgs_allocation_check(const CUmemAllocationProp *prop);

/* Drop one handle. The memory is freed with the last of its handles and mappings. INVALID_VALUE: there is no handle. */
CUresult vgs_allocation_release(CUmemGenericAllocationHandle handle);

/* Whether the program still has a handle of the allocation; else only mappings keep it. */
bool vgs_allocation_has_handle(const struct vgs_allocation *allocation);

/* Add a mapping of cuMemMap to the known ranges; it is unmapped if that fails. */
CUresult vgs_mapping_add(const struct vgs_allocation *allocation, CUdeviceptr ptr, size_t size);

/* Remove the part of a mapping that cuMemUnmap has unmapped. */
void vgs_mappings_remove(CUdeviceptr ptr, size_t size);

/* Whether the request is for access by something other than a device. */
bool vgs_access_is_foreign(const CUmemAccessDesc *desc, size_t count);

#endif
