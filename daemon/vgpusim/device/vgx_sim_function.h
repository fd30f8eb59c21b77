/* Functions, compiled. */
#ifndef VGX_SIM_FUNCTION_H
#define VGX_SIM_FUNCTION_H

#include "vgx_sim_module.h"

/* What to call around each compilation; `begin` refuses it by not returning SUCCESS. */
void vgx_sim_set_compiling(CUresult (*begin)(uint64_t *begun_ns), void (*end)(uint64_t begun_ns));

/* The kernel compiled for a block shape; waits while another thread compiles it. */
CUresult vgx_sim_function_compile(CUfunction function, const uint32_t block[3], uint32_t flags,
                                  const struct vgx_sim_followed *followed, const struct vgx_sim_variant **variant);

/* Blocks of `threads` threads that fit one multiprocessor. */
int64_t vgx_sim_active_blocks(const struct vgx_sim_device *device, CUfunction f, int64_t threads,
                              uint64_t dynamic_nbytes);

#endif
