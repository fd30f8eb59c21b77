/* The memory that a thread needs to run kernels. */
#ifndef VGX_SIM_SCRATCH_H
#define VGX_SIM_SCRATCH_H

#include "vgx_sim_pool.h"

/* Prepare this thread's memory for a job; it is reused for the next one, and exactly the pages that the job needs are
 * accessible. *launch is the job's, with this thread's copies of what its kernel may address. NULL: memory is short. */
struct vgx_sim_thread *vgx_sim_scratch_prepare(const struct vgx_sim_job *job, struct vgx_sim_launch *launch);

/* services->another, on the thread whose memory it is. `place` is less than the job's places. */
uint8_t *vgx_sim_scratch_another(struct vgx_sim_thread *thread, uint64_t place);

/* The job is over: free memory beyond what is worth keeping. */
void vgx_sim_scratch_rest(void);

#endif
