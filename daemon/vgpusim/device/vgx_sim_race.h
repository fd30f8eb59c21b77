/* Racecheck's state for the running CTA: see vgx_sim_race.c. */
#ifndef VGX_SIM_RACE_H
#define VGX_SIM_RACE_H

#include "vgx_sim_watch_part.h"

struct vgx_sim_races *vgx_sim_races_create(void);
void vgx_sim_races_destroy(struct vgx_sim_races *races);
void vgx_sim_races_begin(struct vgx_sim_races *races, uint64_t launch_id, uint64_t cta);
void vgx_sim_races_access(struct vgx_sim_watch *watch, struct vgx_sim_races *races, const struct vgx_sim_thread *thread,
                          const struct vgx_sim_lane_access *access, uint64_t shared_nbytes);
void vgx_sim_races_sync(struct vgx_sim_races *races, uint32_t warp, const struct vgx_sim_sync_point *point);

#endif
