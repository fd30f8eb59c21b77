/* What a CTA loads from global memory ahead of its turn (vgx_sim_watch_turn.c), to be noted when its turn comes: by the
 * functions that note it at once where a CTA is not ahead, and with the clocks that its warps had. Until then the CTA
 * has stored nothing in global memory, so nothing else of it comes before. */
#include "vgx_sim_race_ahead.h"

#include <stdlib.h>

#include "vgx_sim_race_global.h"
#include "vgx_sim_watch_cta.h"
#include "vgx_sim_watch_lock.h"

#define LIST_NBYTES (512u << 10)

struct load {
  const struct vgx_sim_site *site;
  uint64_t base;
  uint32_t clock, mask, starts; /* starts: of lanes */
  uint8_t warp;
  bool is_known, of_lanes; /* of_lanes: the addresses follow */
};
_Static_assert(sizeof(struct load) % 8 == 0, "addresses are aligned");

/* A place for a load; NULL: there is none left. */
static struct load *append(struct vgx_sim_races *r, uint32_t nbytes) {
  if (!r->loads && !(r->loads = malloc(LIST_NBYTES)))
    return NULL;
  if (LIST_NBYTES - r->loads_nbytes < nbytes)
    return NULL;
  struct load *load = (struct load *)(r->loads + r->loads_nbytes);
  r->loads_nbytes += nbytes;
  return load;
}

bool vgx_sim_race_delay_rows(struct vgx_sim_races *r, uint32_t warp, const struct vgx_sim_site *site, uint64_t base,
                             bool is_known) {
  if (warp >= r->warp_count)
    return true;
  struct load *load = append(r, sizeof *load);
  if (load)
    *load = (struct load){site, base, r->warps[warp].of[warp], UINT32_MAX, 0, (uint8_t)warp, is_known, false};
  return load != NULL;
}

/* Lanes whose addresses say all: where all act, those that begin a row. */
static uint32_t telling_lanes(uint32_t mask, uint32_t starts) {
  return starts & 1 && mask == UINT32_MAX ? starts : UINT32_MAX;
}

bool vgx_sim_race_delay_lanes(struct vgx_sim_races *r, uint32_t warp, const struct vgx_sim_site *site,
                              const struct vgx_sim_warp_access *w, bool is_known) {
  uint32_t lanes = telling_lanes(w->mask, w->starts);
  if (warp >= r->warp_count)
    return true;
  struct load *load = append(r, (uint32_t)(sizeof *load + (uint32_t)__builtin_popcount(lanes) * sizeof *w->addresses));
  if (!load)
    return false;
  *load = (struct load){site, w->base, r->warps[warp].of[warp], w->mask, w->starts, (uint8_t)warp, is_known, true};
  uint64_t *addresses = (uint64_t *)(load + 1);
  for (; lanes; lanes &= lanes - 1)
    *addresses++ = w->addresses[__builtin_ctz(lanes)];
  return true;
}

static void note_rows(struct vgx_sim_watch *watch, struct vgx_sim_races *r, const struct vgx_sim_thread *thread,
                      const struct load *load) {
  if (!vgx_sim_race_rows_in_global(r, load->warp, load->site, load->base))
    vgx_sim_races_rows(watch, r, thread, load->site, load->base, NULL);
}

static void note_lanes(struct vgx_sim_watch *watch, struct vgx_sim_races *r, const struct vgx_sim_thread *thread,
                       const struct load *load) {
  const uint64_t *from = (const uint64_t *)(load + 1);
  uint64_t addresses[32];
  for (uint32_t lanes = telling_lanes(load->mask, load->starts); lanes; lanes &= lanes - 1)
    addresses[__builtin_ctz(lanes)] = *from++;
  struct vgx_sim_warp_access w = {
      .addresses = addresses, .base = load->base, .mask = load->mask, .starts = load->starts};
  bool rows = load->starts & 1 && load->mask == UINT32_MAX;
  if (load->is_known &&
      (rows ? vgx_sim_race_lanes_in_global(r, load->warp, load->site, addresses, load->starts)
            : !load->starts && vgx_sim_race_some_in_global(r, load->warp, load->site, addresses, load->mask)))
    return;
  vgx_sim_races_access(watch, r, thread, load->site, &w);
}

static void note_all(struct vgx_sim_watch *watch, struct vgx_sim_races *r, const struct vgx_sim_thread *thread) {
  uint32_t clocks[VGX_SIM_WARPS_MAX], warp_count = r->warp_count;
  struct vgx_sim_thread as = *thread;
  for (uint32_t warp = 0; warp < warp_count; warp++)
    clocks[warp] = r->warps[warp].of[warp];
  for (uint32_t at = 0, length; at < r->loads_nbytes; at += length) {
    const struct load *load = (const struct load *)(r->loads + at);
    uint32_t warp = as.warp = load->warp, *clock = &r->warps[warp].of[warp];
    uint32_t lanes = load->of_lanes ? telling_lanes(load->mask, load->starts) : 0;
    length = (uint32_t)(sizeof *load + (uint32_t)__builtin_popcount(lanes) * sizeof(uint64_t));
    if (*clock != load->clock)
      r->current[warp].epoch = 0;
    *clock = load->clock;
    if (load->of_lanes)
      note_lanes(watch, r, &as, load);
    else
      note_rows(watch, r, &as, load);
  }
  for (uint32_t warp = 0; warp < warp_count; warp++) {
    if (r->warps[warp].of[warp] != clocks[warp])
      r->current[warp].epoch = 0;
    r->warps[warp].of[warp] = clocks[warp];
  }
  r->loads_nbytes = 0;
}

void vgx_sim_race_begin_turn(struct vgx_sim_watch *watch, struct vgx_sim_cta_watch *cta,
                             const struct vgx_sim_thread *thread) {
  vgx_sim_watch_hold(watch);
  vgx_sim_races_enter(cta->races, watch->launch);
  note_all(watch, cta->races, thread);
}
