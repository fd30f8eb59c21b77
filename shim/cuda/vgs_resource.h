/* Device resources: multiprocessors. */
#ifndef VGS_RESOURCE_H
#define VGS_RESOURCE_H

#include "vgw_cuda.h"

/* One or several (malloc'ed) resources in the form of the worker's driver: one that was described here is first
 * fetched. */
CUresult vgs_resource_resolve(const CUdevResource *resource, CUdevResource *known);
CUresult vgs_resources_resolve(const CUdevResource *resources, unsigned count, CUdevResource **known);

#endif
