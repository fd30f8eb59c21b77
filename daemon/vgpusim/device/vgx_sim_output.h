/* What kernels print. */
#ifndef VGX_SIM_OUTPUT_H
#define VGX_SIM_OUTPUT_H

#include "vgx_sim_internal.h"

/* Append a message, at most as long as the context's printf limit; the oldest ones are dropped to make room. */
void vgx_sim_output_append(CUcontext ctx, const char *text, uint64_t nbytes);
/* Device printf as the vprintf ABI passes it; runs on a kernel's thread and may leave it if the arguments fault. */
int32_t vgx_sim_output_format(CUcontext ctx, const char *format, const uint8_t *args);

#endif
