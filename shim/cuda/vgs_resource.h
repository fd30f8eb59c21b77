/* Device resources: multiprocessors. */
#ifndef VGS_RESOURCE_H
#define VGS_RESOURCE_H

#include "vgw_cuda.h"

/* Resolve one or several (malloc'ed) resources to the form of the worker's driver: a resource that was described here
 * is fetched first. */
CUresult vgs_resource_resolve(const CUdevResource *resource, CUdevResource *known);
CUresult vgs_resources_resolve(const CUdevResource *resources, unsigned count, CUdevResource **known);

#endif
