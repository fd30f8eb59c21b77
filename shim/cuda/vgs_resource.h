/* Device resources: multiprocessors. */
#ifndef VGS_RESOURCE_H
#define VGS_RESOURCE_H

#include "vgw_cuda.h"

/* As the worker's driver knows a resource, or several (malloc'ed): one that was described here is fetched. */
CUresult vgs_resource_resolve(const CUdevResource *resource, CUdevResource *known);
CUresult vgs_resources_resolve(const CUdevResource *resources, unsigned count, CUdevResource **known);

#endif
