/* Callbacks of the resource domain: contexts and streams that calls create and destroy. */
#ifndef VGS_CUPTI_RESOURCE_H
#define VGS_CUPTI_RESOURCE_H

#include "vgs_profiling.h"

/* Whether this library ever reports the domain's event. */
bool vgs_cupti_resource_is_seen(uint32_t id);

/* Called before and after a driver call: report what it destroys and what it has created. No lock held. */
void vgs_cupti_resources_before(const struct vgs_api_call *call);
void vgs_cupti_resources_after(const struct vgs_api_call *call, int result);

#endif
