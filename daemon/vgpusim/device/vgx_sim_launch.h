/* Launches. */
#ifndef VGX_SIM_LAUNCH_H
#define VGX_SIM_LAUNCH_H

#include "vgx_sim_internal.h"

/* Create a launch without submitting it. */
CUresult vgx_sim_launch_create(CUcontext ctx, CUfunction handle, const uint32_t grid[3], const uint32_t block[3],
                               uint32_t dynamic_nbytes, void **kernel_params, void **extra, struct vgx_sim_op **op);

/* Likewise, with what its attributes say about how the kernel runs. */
CUresult vgx_sim_launch_create_as(CUcontext ctx, CUfunction handle, const uint32_t grid[3], const uint32_t block[3],
                                  uint32_t dynamic_nbytes, void **kernel_params, void **extra,
                                  const struct vgx_sim_launch_form *form, struct vgx_sim_op **op);
struct vgx_sim_launch_form vgx_sim_launch_form(const struct vgx_sim_op *op);

/* The parameters of the launch. The pointers are valid as long as the operation. */
void vgx_sim_launch_params(const struct vgx_sim_op *op, CUDA_KERNEL_NODE_PARAMS_v2 *params);

/* For a launch: pin (1) or unpin (-1) its module; false when it is unloaded. Other operations: true. */
bool vgx_sim_launch_pin_locked(const struct vgx_sim_op *op, int change);

#endif
