/* Racecheck in shared memory: see vgx_sim_race_shared.c. */
#ifndef VGX_SIM_RACE_SHARED_H
#define VGX_SIM_RACE_SHARED_H

#include "vgx_sim_race.h"
#include "vgx_sim_race_order.h"

/* What lanes access in the site's pattern from the offset `base` on; or anywhere. */
void vgx_sim_race_rows_in_shared(struct vgx_sim_race_access *a, uint32_t base, uint32_t mask);
/* Whether a load or store in the site's pattern is the next of a trace, and so races with nothing and is inside: it is
 * noted then. */
bool vgx_sim_race_rows_are_traced(struct vgx_sim_races *races, uint32_t warp, const struct vgx_sim_site *site,
                                  uint64_t base, uint32_t mask);
void vgx_sim_race_lanes_in_shared(struct vgx_sim_race_access *a, const struct vgx_sim_warp_access *w);
bool vgx_sim_race_reserve_shared(struct vgx_sim_race_shared *shared, uint64_t nbytes);
void vgx_sim_race_release_shared(struct vgx_sim_race_shared *shared);
/* Something other than a barrier of the whole CTA orders warps: what is traced (vgx_sim_race_trace.h) is noted. */
void vgx_sim_race_leave_trace(struct vgx_sim_races *r);
/* These warps' accesses are ordered before all that follows. */
void vgx_sim_race_clear_shared(struct vgx_sim_races *r, uint32_t warps);

#endif
