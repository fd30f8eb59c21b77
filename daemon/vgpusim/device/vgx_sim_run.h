/* Running launches. */
#ifndef VGX_SIM_RUN_H
#define VGX_SIM_RUN_H

#include "vgx_sim_module.h"
#include "vgx_sim_pool.h"

typedef CUresult vgx_sim_launch_create_fn(CUcontext ctx, CUfunction handle, const uint32_t grid[3],
                                          const uint32_t block[3], uint32_t dynamic_nbytes, void **kernel_params,
                                          void **extra, const struct vgx_sim_launch_form *form, struct vgx_sim_op **op);

/* The parameters of a launch. It may run any number of times, also concurrently (graphs). */
struct vgx_sim_launch_op {
  struct vgx_sim_op op;
  CUcontext ctx;
  CUfunction function;
  struct vgx_sim_job job; /* without the members that each run sets */
  bool together;          /* a thread runs several CTAs at once */
  struct vgx_sim_launch_form form;
  CUfunction named; /* by the caller: the function, or a library's kernel */
  /* vgx_sim_launch_create_as, with which kernels of this launch launch kernels. */
  vgx_sim_launch_create_fn *create;
  size_t param_nbytes;           /* of the caller's block */
  void *extra[5];                /* `params`, in the form that a launch takes */
  _Alignas(16) uint8_t params[]; /* kernels check the alignment of what they read by an address */
};

/* The operation's `run`: runs the launch on the pool. A fault becomes the result and one line in the log. */
CUresult vgx_sim_run_launch(struct vgx_sim_op *op);

#endif
