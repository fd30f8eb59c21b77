/* Racecheck's list of a CTA's loads ahead of its turn: see vgx_sim_race_ahead.c. */
#ifndef VGX_SIM_RACE_AHEAD_H
#define VGX_SIM_RACE_AHEAD_H

#include "vgx_sim_race.h"
#include "vgx_sim_race_order.h"

/* Keep a plain load from global memory, of all lanes, in the site's rows from `base` on. False: the list is full. */
bool vgx_sim_race_delay_rows(struct vgx_sim_races *r, uint32_t warp, const struct vgx_sim_site *site, uint64_t base,
                             bool is_known);
/* The same of any lanes; all have the site's bytes. */
bool vgx_sim_race_delay_lanes(struct vgx_sim_races *r, uint32_t warp, const struct vgx_sim_site *site,
                              const struct vgx_sim_warp_access *w, bool is_known);
/* The member `begin_turn` of struct vgx_sim_watch: notes all that is kept. */
void vgx_sim_race_begin_turn(struct vgx_sim_watch *watch, struct vgx_sim_cta_watch *cta,
                             const struct vgx_sim_thread *thread);

#endif
