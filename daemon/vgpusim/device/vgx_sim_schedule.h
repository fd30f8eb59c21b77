/* The order in which a compiled kernel's warps run. */
#ifndef VGX_SIM_SCHEDULE_H
#define VGX_SIM_SCHEDULE_H

#include "vgx_sim_abi.h"

/* Before this thread takes part in a launch, which a kick may end before its first CTA: until then no warp has run. */
void vgx_sim_schedule_init(const struct vgx_sim_thread *thread);

/* Take CTAs of the launch until none is left or it stops, and run their warps on this thread. */
void vgx_sim_schedule(const struct vgx_sim_code *code, const struct vgx_sim_launch *launch,
                      struct vgx_sim_thread *thread);

/* Wait until a kernel that was compiled quickly has used up its time (struct vgx_sim_quick), once for each such kernel.
 */
void vgx_sim_schedule_wait(void);

/* The CTA and warp that this thread ran last; valid as long as the memory of its last job. */
const struct vgx_sim_thread *vgx_sim_schedule_running(void);

#endif
