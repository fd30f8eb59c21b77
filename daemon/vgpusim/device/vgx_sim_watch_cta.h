/* The sanitizer's state of the CTA that a thread runs. */
#ifndef VGX_SIM_WATCH_CTA_H
#define VGX_SIM_WATCH_CTA_H

#include <string.h>

#include "vgx_sim_race.h"
#include "vgx_sim_watch_part.h"

/* State of a running CTA. */
struct vgx_sim_cta_watch {
  uint64_t launch_id;
  uint64_t cta;
  uint32_t waits_at[32]; /* by warp: the barrier */
  struct vgx_sim_races *races;
  uint8_t *shared_defined; /* by byte */
  uint64_t shared_nbytes, undefined_nbytes;
  /* By thread: its last loads of unset bytes, the latest first; site NULL: none; nbytes 0: reported. */
  struct vgx_sim_lane_access *unset;
  bool some_unset; /* one of them has a site */
};

#define VGX_SIM_UNSET_LOADS 4u /* of a thread */

static inline uint64_t vgx_sim_watch_shared_nbytes(const struct vgx_sim_watch *watch) {
  return (uint64_t)watch->launch->shared_static_nbytes + watch->launch->shared_dynamic_nbytes;
}

static inline uint64_t vgx_sim_watch_cta_number(const struct vgx_sim_watch *watch,
                                                const struct vgx_sim_thread *thread) {
  const uint32_t *grid = watch->launch->grid;
  return thread->cta[0] + grid[0] * (thread->cta[1] + (uint64_t)grid[1] * thread->cta[2]);
}

/* The state of the CTA that this thread runs, cleared for a new CTA. NULL: memory is short. The caller has called
 * vgx_sim_watch_lock. */
struct vgx_sim_cta_watch *vgx_sim_cta_watch_find(struct vgx_sim_watch *watch, const struct vgx_sim_thread *thread);

static inline struct vgx_sim_watched_thread *vgx_sim_watched(struct vgx_sim_watch *watch,
                                                             const struct vgx_sim_thread *thread) {
  return &watch->threads[thread->number % VGX_SIM_WATCH_THREADS];
}

static inline bool vgx_sim_is_last_cta(const struct vgx_sim_watched_thread *watched,
                                       const struct vgx_sim_thread *thread) {
  const uint32_t *last = watched->last_cta;
  return watched->last && last[0] == thread->cta[0] && last[1] == thread->cta[1] && last[2] == thread->cta[2];
}

static inline struct vgx_sim_cta_watch *vgx_sim_cta_watch_of(struct vgx_sim_watch *watch,
                                                             const struct vgx_sim_thread *thread) {
  struct vgx_sim_watched_thread *watched = vgx_sim_watched(watch, thread);
  if (!vgx_sim_is_last_cta(watched, thread)) {
    watched->last = vgx_sim_cta_watch_find(watch, thread);
    memcpy(watched->last_cta, thread->cta, sizeof watched->last_cta);
  }
  return watched->last;
}

static inline void vgx_sim_define_shared(struct vgx_sim_cta_watch *cta, uint64_t offset, uint32_t nbytes) {
  for (uint8_t *at = cta->shared_defined + offset, *end = at + nbytes; at < end; at++) {
    cta->undefined_nbytes -= *at == 0;
    *at = 1;
  }
}

#endif
