/* Functions, compiled. */
#ifndef VGX_SIM_FUNCTION_H
#define VGX_SIM_FUNCTION_H

#include "vgx_sim_module.h"

/* The kernel compiled for a block shape; waits while another thread compiles it. */
CUresult vgx_sim_function_compile(CUfunction function, const uint32_t block[3], uint32_t flags,
                                  const struct vgx_sim_variant **variant);

#endif
