/* Clusters of CTAs: what a launch asks for and a kernel requires. */
#ifndef VGX_SIM_CLUSTER_H
#define VGX_SIM_CLUSTER_H

#include "vgx_sim_module.h"

/* The cluster dimensions of a launch of `f`: those that the launch requests, else those of the kernel or its
 * attributes; 1, 1, 1: no clusters. `asked` is NULL or zeros if the launch requests none. INVALID_CLUSTER_SIZE: too
 * large, or the grid is not a multiple of it. */
CUresult vgx_sim_cluster_of(const struct vgx_sim_device *device, CUfunction f, const uint32_t asked[3],
                            const uint32_t grid[3], uint32_t cluster[3]);

static inline uint32_t vgx_sim_cluster_size(const uint32_t cluster[3]) { return cluster[0] * cluster[1] * cluster[2]; }

/* Flags for vgx_sim_function_compile. */
static inline uint32_t vgx_sim_cluster_flags(const uint32_t cluster[3]) {
  if (vgx_sim_cluster_size(cluster) == 1)
    return 0;
  return cluster[0] << VGX_SIM_COMPILE_CLUSTER_SHIFT | cluster[1] << (VGX_SIM_COMPILE_CLUSTER_SHIFT + 8) |
         cluster[2] << (VGX_SIM_COMPILE_CLUSTER_SHIFT + 16);
}

/* The most CTAs that a cluster of the function may have. */
uint32_t vgx_sim_cluster_largest(CUfunction f);

/* The dimensions that a launch's attributes ask for; zeros: none. */
void vgx_sim_cluster_asked(const CUlaunchConfig *config, uint32_t asked[3]);

#endif
