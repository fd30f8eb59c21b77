/* Holds threads back between their entry of a launch and its first CTA (linked in by -Wl,--wrap), as when a busy
 * machine does not run them, until a kick takes them out of it. */
#include <unistd.h>

#include "vgx_sim_schedule.h"

void __real_vgx_sim_schedule(const struct vgx_sim_code *code, const struct vgx_sim_launch *launch,
                             struct vgx_sim_thread *thread);
void __wrap_vgx_sim_schedule(const struct vgx_sim_code *code, const struct vgx_sim_launch *launch,
                             struct vgx_sim_thread *thread);

int vgt_held_back; /* set by a test */

void __wrap_vgx_sim_schedule(const struct vgx_sim_code *code, const struct vgx_sim_launch *launch,
                             struct vgx_sim_thread *thread) {
  while (__atomic_load_n(&vgt_held_back, __ATOMIC_RELAXED))
    usleep(1000);
  __real_vgx_sim_schedule(code, launch, thread);
}
