/* Racecheck outside of shared memory: see vgx_sim_race_global.c. */
#ifndef VGX_SIM_RACE_GLOBAL_H
#define VGX_SIM_RACE_GLOBAL_H

#include "vgx_sim_race_order.h"

/* A row: bytes without gaps that lanes access one after another, 1 << log2_nbytes each, from `lane` on. */
void vgx_sim_race_in_global(struct vgx_sim_race_access *a, uint64_t address, uint64_t nbytes, uint32_t lane,
                            uint32_t log2_nbytes);
/* A plain load or store of all lanes, in the site's rows from `base` on, so far as rows are whole segments or halves of
 * them that no other warp's access could race with. False: more is to be looked at, of all rows. */
bool vgx_sim_race_rows_in_global(struct vgx_sim_races *r, uint32_t warp, const struct vgx_sim_site *site,
                                 uint64_t base);
/* The same of accesses whose rows begin at the lanes of `starts`; stores to one place are not noted either. */
bool vgx_sim_race_lanes_in_global(struct vgx_sim_races *r, uint32_t warp, const struct vgx_sim_site *site,
                                  const uint64_t *addresses, uint32_t starts);
/* The same of lanes of which some do not act. */
bool vgx_sim_race_some_in_global(struct vgx_sim_races *r, uint32_t warp, const struct vgx_sim_site *site,
                                 const uint64_t *addresses, uint32_t mask);
/* Of accesses outside of shared memory, in order: the last one's epoch, and how often it has differed from the one
 * before. */
extern uint32_t vgx_sim_race_noted_epoch, vgx_sim_race_turn;

static inline void vgx_sim_race_take_turn(uint32_t epoch) {
  vgx_sim_race_turn += epoch != vgx_sim_race_noted_epoch;
  vgx_sim_race_noted_epoch = epoch;
}

/* Remember that the rows are noted, for as long as no other warp accesses memory: what the warp accesses again, as in a
 * loop, needs no look. */
void vgx_sim_race_rows_are_noted(const struct vgx_sim_site *site, uint64_t base);
void vgx_sim_race_clear_global(void);

#endif
