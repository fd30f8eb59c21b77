/* Streams, events and host functions. */
#ifndef VGX_SIM_STREAM_H
#define VGX_SIM_STREAM_H

#include "vgx_sim_internal.h"

void vgx_sim_stream_init(CUstream stream, CUcontext ctx, uint32_t flags, int32_t priority);
/* Create a stream of a context, or of a green one. */
CUresult vgx_sim_stream_create(CUcontext ctx, CUgreenCtx green, unsigned int flags, int priority, CUstream *made);

/* Create the call of a host function without submitting it. */
CUresult vgx_sim_host_create(const CUDA_HOST_NODE_PARAMS *params, struct vgx_sim_op **op);
void vgx_sim_host_params(const struct vgx_sim_op *op, CUDA_HOST_NODE_PARAMS *params);

#endif
