/* Textures and surfaces of a session. */
#ifndef VGX_SAMPLED_H
#define VGX_SAMPLED_H

#include "vgx_session.h"

/* Note what was made, so that the client may destroy it. OUT_OF_MEMORY: it is destroyed. */
CUresult vgx_sampled_add(struct vgx_session *s, uint64_t value, bool surface);

/* Before it is destroyed. False: the session has not made it. */
bool vgx_sampled_remove(struct vgx_session *s, uint64_t value, bool surface);

/* Make a client's resource the backend's: arrays by id, memory if it is the client's to name. */
CUresult vgx_resource_of(struct vgx_session *s, CUDA_RESOURCE_DESC *resource, uint32_t id);

#endif
