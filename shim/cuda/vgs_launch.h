/* A launch's kernel, shape and parameters, as launches and graph nodes check and pack them. */
#ifndef VGS_LAUNCH_H
#define VGS_LAUNCH_H

#include "vgs_objects.h"

struct vgs_launch {
  struct vgs_kernel *kernel; /* its description is known */
  uint32_t grid[3], block[3], shared_nbytes;
  uint32_t stream;
  void **params, **extra;
};

/* Check the shape as the driver does. */
CUresult vgs_launch_check_shape(const struct vgs_launch *launch);

/* The parameter block: gathered from one pointer per parameter, or given whole in `extra`. `block` has room for the
 * kernel's parameters; it is filled, or *given set to the program's own. */
CUresult vgs_launch_pack_params(const struct vgs_launch *launch, char *block, const void **given);

/* Read CUDA_LAUNCH_BLOCKING; called by cuInit. */
void vgs_launch_configure(void);

#endif
