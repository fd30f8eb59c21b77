/* Callbacks of the resource domain: contexts and streams that calls create and destroy. */
#ifndef VGS_CUPTI_RESOURCE_H
#define VGS_CUPTI_RESOURCE_H

#include "vgs_profiling.h"

/* Whether the domain's event ever comes. */
bool vgs_cupti_resource_is_seen(uint32_t id);

/* Before and after a call of the driver: what it destroys, what it has created. No lock held. */
void vgs_cupti_resources_before(const struct vgs_api_call *call);
void vgs_cupti_resources_after(const struct vgs_api_call *call, int result);

#endif
