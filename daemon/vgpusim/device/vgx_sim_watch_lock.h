/* Who may use the sanitizer's state about memory: a watched launch takes a lock at each access, so kernels of several
 * streams wait for each other. Where a launch runs on one thread (initcheck, racecheck), or its CTAs take turns
 * (vgx_sim_watch_turn.c), it keeps a lease instead, until another one wants it or the launch ends. */
#ifndef VGX_SIM_WATCH_LOCK_H
#define VGX_SIM_WATCH_LOCK_H

#include "vgx_sim_watch.h"

/* The lease: the number of who has it, 0: nobody. A thread gets a new number for each launch, so that a launch which
 * ends takes back its own lease, never that of the thread's next launch. */
extern uint64_t vgx_sim_watch_lease;      /* atomic */
extern uint32_t vgx_sim_watch_want_count; /* atomic; threads that wait for it */

/* A CTA that is ahead of its turn may use its own state alone, and takes no lock. */
void vgx_sim_watch_lock(struct vgx_sim_watch *watch, const struct vgx_sim_thread *thread);
void vgx_sim_watch_unlock(const struct vgx_sim_watch *watch);
/* Take the lease, unless the launch has it and nobody waits for it. */
void vgx_sim_watch_hold(struct vgx_sim_watch *watch);
/* At the end of a launch: take its lease, if it has one, from its thread; give it back. */
void vgx_sim_watch_take(struct vgx_sim_watch *watch);
void vgx_sim_watch_release(const struct vgx_sim_watch *watch);

/* Whether the launch has the lease and nobody waits for it. */
static inline bool vgx_sim_watch_is_locked(const struct vgx_sim_watch *watch) {
  return watch->lease && __atomic_load_n(&vgx_sim_watch_lease, __ATOMIC_RELAXED) == watch->lease &&
         !__atomic_load_n(&vgx_sim_watch_want_count, __ATOMIC_RELAXED);
}

#endif
