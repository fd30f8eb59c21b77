/* Textures and surfaces of a session. */
#ifndef VGX_SAMPLED_H
#define VGX_SAMPLED_H

#include "vgx_session.h"

/* Record a new object, so that the client may destroy it. OUT_OF_MEMORY: the object has been destroyed. */
CUresult vgx_sampled_add(struct vgx_session *s, uint64_t value, bool surface);

/* Called before an object is destroyed. False: this session has not created it. */
bool vgx_sampled_remove(struct vgx_session *s, uint64_t value, bool surface);

/* Translate a client's resource for the backend: arrays by id; memory if the client may name it. */
CUresult vgx_resource_of(struct vgx_session *s, CUDA_RESOURCE_DESC *resource, uint32_t id);

#endif
