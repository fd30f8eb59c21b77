/* Device resources that the driver has given to a session. */
#ifndef VGX_RESOURCE_H
#define VGX_RESOURCE_H

#include "vgx_session.h"

/* Record resources that the driver has returned. OUT_OF_MEMORY: the session has too many. */
CUresult vgx_resources_add(struct vgx_session *s, const CUdevResource *resources, uint64_t count);
CUresult vgx_resources_add_split(struct vgx_session *s, const CUdevResource *groups, uint64_t count,
                                 const CUdevResource *remaining);

/* Whether the driver has returned all of them to this session. */
bool vgx_resources_are_known(struct vgx_session *s, const CUdevResource *resources, uint64_t count);

#endif
