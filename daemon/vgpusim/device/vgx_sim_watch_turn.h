/* CTAs of a watched launch that run ahead of their turn: see vgx_sim_watch_turn.c. */
#ifndef VGX_SIM_WATCH_TURN_H
#define VGX_SIM_WATCH_TURN_H

#include "vgx_sim_watch_cta.h"

/* Whether CTAs of a kernel (enum vgx_sim_turns) run ahead under these tools, if none waits for another one. */
bool vgx_sim_watch_goes_ahead(uint32_t tools, uint32_t turns);

/* Wait until it is the turn of the CTA that the thread runs, and note what it has done ahead of it. Does not return if
 * the launch stops meanwhile. Called inside a service (vgx_sim_service_begin). */
void vgx_sim_watch_take_turn(struct vgx_sim_watch *watch, const struct vgx_sim_thread *thread);

/* Decide whether a CTA that begins does so ahead of its turn. Called inside a service. */
bool vgx_sim_watch_begins_ahead(struct vgx_sim_watch *watch, const struct vgx_sim_thread *thread);

static inline bool vgx_sim_watch_is_ahead(struct vgx_sim_watch *watch, const struct vgx_sim_thread *thread) {
  struct vgx_sim_watched_thread *watched = vgx_sim_watched(watch, thread);
  if (!watch->in_order || vgx_sim_is_last_cta(watched, thread))
    return watched->ahead;
  return watched->ahead = vgx_sim_watch_begins_ahead(watch, thread);
}

/* The member `end_cta` of struct vgx_sim_services. */
int32_t vgx_sim_serve_end_cta(struct vgx_sim_services *services, const struct vgx_sim_thread *thread);

#endif
