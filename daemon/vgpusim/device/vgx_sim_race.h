/* Racecheck's state for the running CTA: see vgx_sim_race.c. */
#ifndef VGX_SIM_RACE_H
#define VGX_SIM_RACE_H

#include "vgx_sim_watch_part.h"

/* A warp's access. */
struct vgx_sim_warp_access {
  const uint64_t *addresses; /* by lane; NULL: all lanes act, in the site's rows from `base` on */
  uint64_t base;             /* not 0: lanes act in the site's pattern from there on */
  uint32_t mask;
  const uint8_t *values; /* by lane: what is stored; NULL: unknown */
  const uint32_t *sizes; /* by lane, bytes; NULL: the site's */
  uint32_t starts;       /* lanes whose access does not follow the lane's before; 0: unknown */
  uint64_t objects;      /* of an ordered access: bits; 0: unknown */
  uint64_t shared_nbytes;
};

struct vgx_sim_races *vgx_sim_races_create(void);
void vgx_sim_races_destroy(struct vgx_sim_races *races);
/* A CTA begins. `alone`: the launch runs one CTA at a time, or as if it did. */
void vgx_sim_races_begin(struct vgx_sim_races *races, const struct vgx_sim_launch *launch, uint64_t cta, bool alone);
/* From now on the CTA's accesses of global memory can be noted. */
void vgx_sim_races_enter(struct vgx_sim_races *races, const struct vgx_sim_launch *launch);
/* False: memory is short. */
bool vgx_sim_races_access(struct vgx_sim_watch *watch, struct vgx_sim_races *races, const struct vgx_sim_thread *thread,
                          const struct vgx_sim_site *site, const struct vgx_sim_warp_access *access);
/* A plain load or store of all lanes, in the site's rows from `base` on, outside of shared memory. */
void vgx_sim_races_rows(struct vgx_sim_watch *watch, struct vgx_sim_races *races, const struct vgx_sim_thread *thread,
                        const struct vgx_sim_site *site, uint64_t base, const uint8_t *values);
/* `barrier`: the number, also where a warp resumes. */
void vgx_sim_races_sync(struct vgx_sim_races *races, uint32_t warp, const struct vgx_sim_sync_point *point,
                        uint32_t barrier);

#endif
