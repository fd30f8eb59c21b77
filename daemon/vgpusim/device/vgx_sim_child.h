/* Launches from kernels. */
#ifndef VGX_SIM_CHILD_H
#define VGX_SIM_CHILD_H

#include "vgx_sim_run.h"

/* The requests of a launch's kernels and of the kernels that those launch. */
struct vgx_sim_family {
  pthread_mutex_t lock; /* leaf */
  struct vgx_sim_child *prepared, *first, *last, *tail_first, *tail_last;
  uint64_t prepared_count, count; /* launches that wait for parameters; requests that wait to be run */
  uint64_t objects;               /* streams and events made so far, which are mere numbers */
  uint32_t error;                 /* the last one */
};

/* services->device_runtime, for a kernel of `l`. */
uint64_t vgx_sim_child_ask(struct vgx_sim_family *family, const struct vgx_sim_launch_op *l, uint32_t question,
                           const uint64_t *values);

/* Run the requested launches in their order, and those that they request. The first error ends it. */
CUresult vgx_sim_child_run(struct vgx_sim_family *family);

/* Free the requests that were not run. */
void vgx_sim_child_fini(struct vgx_sim_family *family);

#endif
