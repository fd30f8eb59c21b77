/* Reading a texture, writing a surface. */
#ifndef VGX_SIM_SAMPLE_H
#define VGX_SIM_SAMPLE_H

#include "vgx_sim_internal.h"

/* The member `texture` of struct vgx_sim_services, for a kernel of `ctx`. Returns NULL, or what is wrong. */
const char *vgx_sim_sample(CUcontext ctx, uint64_t form, uint32_t mask, const uint64_t *in, uint64_t *out);
/* What is wrong with an access that is CUDA_ERROR_MISALIGNED_ADDRESS; vgx_sim_tensor.h has those that are
 * CUDA_ERROR_ILLEGAL_INSTRUCTION, and the others are CUDA_ERROR_LAUNCH_FAILED. */
extern const char vgx_sim_misaligned_surface[];

#endif
