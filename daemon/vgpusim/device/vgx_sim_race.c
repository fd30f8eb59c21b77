/* Racecheck's entries, and the order within a CTA: see vgx_sim_race_order.c for what a race is. */
#include <stdlib.h>
#include <string.h>

#include "vgx_sim_race_global.h"
#include "vgx_sim_race_order.h"
#include "vgx_sim_race_shared.h"
#include "vgx_sim_race_span.h"
#include "vgx_sim_race_trace.h"

#define WARPS VGX_SIM_WARPS_MAX
#define LAUNCHES 64u
#define SPARES_MAX 4u

static struct {
  uint32_t launch, first;
} launches[LAUNCHES];
static struct vgx_sim_races *spares[SPARES_MAX]; /* with memory for notes: a launch needs no new pages */
static uint32_t spare_count, used_count;

struct vgx_sim_races *vgx_sim_races_create(void) {
  if (!vgx_sim_race_reserve_epochs())
    return NULL;
  struct vgx_sim_races *races = spare_count ? spares[--spare_count] : calloc(1, sizeof(struct vgx_sim_races));
  if (races && used_count++ == 0)
    vgx_sim_race_end_epochs();
  return races;
}

void vgx_sim_races_destroy(struct vgx_sim_races *races) {
  if (!races)
    return;
  used_count--;
  if (spare_count < SPARES_MAX) {
    spares[spare_count++] = races;
    return;
  }
  vgx_sim_race_release_shared(&races->shared);
  free(races->loads);
  free(races);
}

/* Numbers are used up: forget all notes. */
static void begin_anew(struct vgx_sim_races *r) {
  vgx_sim_race_clear_global();
  vgx_sim_race_clear_epochs();
  memset(launches, 0, sizeof launches);
  r->first = r->first_of_launch = 1;
  memset(r->current, 0, sizeof r->current);
}

static inline uint32_t current_epoch(struct vgx_sim_races *r, uint32_t warp) {
  uint32_t epoch = vgx_sim_race_epoch(r, warp);
  if (epoch)
    return epoch;
  begin_anew(r);
  return vgx_sim_race_epoch(r, warp);
}

static void advance(struct vgx_sim_races *r, uint32_t warp) {
  r->at_begin = false;
  r->warps[warp].of[warp]++;
  r->current[warp].epoch = 0;
}

/* Returns whether `to` has changed. */
static bool join(struct vgx_sim_clock *to, const struct vgx_sim_clock *from, uint32_t count) {
  uint32_t changes = 0;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t later = to->of[i] < from->of[i] ? from->of[i] : to->of[i];
    changes |= later ^ to->of[i];
    to->of[i] = later;
  }
  return changes != 0;
}

void vgx_sim_races_begin(struct vgx_sim_races *r, const struct vgx_sim_launch *launch, uint64_t cta, bool alone) {
  uint32_t id = (uint32_t)launch->launch_id, threads = launch->block[0] * launch->block[1] * launch->block[2];
  vgx_sim_race_clear_shared(r, (uint32_t)((1ull << r->warp_count) - 1));
  if (r->launch != id && r->shared.traces)
    vgx_sim_race_traces_clear(r->shared.traces);
  r->launch = id;
  r->cta = (uint32_t)cta;
  uint32_t warp_count = (threads + 31) / 32 < WARPS ? (threads + 31) / 32 : WARPS;
  for (uint32_t w = 0; w < warp_count; w++)
    r->current[w].epoch = 0;
  for (uint32_t w = 0; w < warp_count && !(r->at_begin && r->warp_count == warp_count); w++) {
    memset(&r->warps[w], 0, warp_count * sizeof r->warps[w].of[0]);
    r->warps[w].of[w] = 1;
    r->known_objects[w] = 0;
    r->use_counts[w] = 0;
  }
  r->warp_count = warp_count;
  r->at_begin = true;
  if (r->uses_barriers) {
    memset(r->round, 0, sizeof r->round);
    memset(r->gathered, 0, sizeof r->gathered);
  }
  r->uses_barriers = false;
  r->fenced = 0;
  r->used_objects = 0;
  r->alone = alone;
  r->loads_nbytes = 0;
}

void vgx_sim_races_enter(struct vgx_sim_races *r, const struct vgx_sim_launch *launch) {
  uint32_t id = (uint32_t)launch->launch_id;
  if (launches[id % LAUNCHES].launch != id || !launches[id % LAUNCHES].first) {
    vgx_sim_race_clear_sites(); /* those of modules that are gone, too */
    vgx_sim_race_reset_uses();
    launches[id % LAUNCHES].launch = id;
    launches[id % LAUNCHES].first = vgx_sim_race_last_epoch() + 1;
  }
  r->first_of_launch = launches[id % LAUNCHES].first;
  r->first = vgx_sim_race_last_epoch() + 1;
}

/* Set the times of the objects in the warp's last uses. */
static void set_object_times(struct vgx_sim_races *r, uint32_t warp) {
  uint64_t done = 0;
  while (r->use_counts[warp]) {
    uint32_t last = --r->use_counts[warp];
    for (uint64_t left = r->uses[warp][last].objects & ~done; left; left &= left - 1)
      r->object_times[__builtin_ctzll(left)] = r->uses[warp][last].time;
    done |= r->uses[warp][last].objects;
  }
}

/* Release and acquire the objects: threads that use one are ordered after those that have used it before. */
static void meet(struct vgx_sim_races *r, uint32_t warp, uint64_t objects) {
  struct vgx_sim_clock *mine = &r->warps[warp];
  uint64_t foreign = objects & ~r->known_objects[warp];
  bool learned = false;
  vgx_sim_race_leave_trace(r);
  for (uint32_t other = 0; foreign & r->used_objects && other < r->warp_count; other++)
    set_object_times(r, other);
  for (uint64_t left = foreign & r->used_objects; left; left &= left - 1) {
    uint32_t object = (uint32_t)__builtin_ctzll(left);
    uint32_t user = r->object_users[object];
    r->objects[object].of[user] = r->object_times[object];
    if (mine->of[user] < r->object_times[object]) /* else it has heard of that use, and of all that came before */
      learned |= join(mine, &r->objects[object], r->warp_count);
  }
  if (foreign) {
    /* What is copied knows no more than this warp has learned above. */
    for (uint64_t left = learned ? objects : foreign; left; left &= left - 1) {
      memcpy(r->objects[__builtin_ctzll(left)].of, mine->of, r->warp_count * sizeof mine->of[0]);
      r->object_users[__builtin_ctzll(left)] = (uint8_t)warp;
    }
    for (uint32_t other = 0; other < r->warp_count; other++)
      r->known_objects[other] &= ~objects;
    r->known_objects[warp] = learned ? objects : r->known_objects[warp] | objects;
    r->used_objects |= objects;
  }
  if (r->use_counts[warp] == VGX_SIM_RACE_USES)
    set_object_times(r, warp);
  r->uses[warp][r->use_counts[warp]].objects = objects;
  r->uses[warp][r->use_counts[warp]++].time = mine->of[warp];
  advance(r, warp);
}

static void arrive(struct vgx_sim_races *r, uint32_t warp, uint32_t barrier, bool whole) {
  if (!whole)
    vgx_sim_race_leave_trace(r);
  r->uses_barriers = true;
  uint32_t round = ++r->round[barrier][warp], half = round & 1;
  if (r->gathered[barrier][half].round != round) { /* the first warp at the barrier in this round */
    r->gathered[barrier][half].round = round;
    r->gathered[barrier][half].warps = r->gathered[barrier][half].waiting = 0;
    r->gathered[barrier][half].whole = true;
    r->gathered[barrier][half].opened = false;
    memset(&r->gathered[barrier][half].clock, 0, sizeof r->gathered[barrier][half].clock);
  }
  if (whole) {
    r->gathered[barrier][half].clock.of[warp] = r->warps[warp].of[warp];
    r->gathered[barrier][half].waiting |= 1u << warp;
  } else {
    join(&r->gathered[barrier][half].clock, &r->warps[warp], r->warp_count);
  }
  r->gathered[barrier][half].warps |= 1u << warp;
  r->gathered[barrier][half].whole &= whole;
  advance(r, warp);
}

/* Before a warp goes on: where all wait, nobody knows more of a warp than the warp itself. Else join what those
 * that wait know of others; they have done nothing since, but their own times have advanced. */
static void open_barrier(struct vgx_sim_races *r, uint32_t barrier, uint32_t half) {
  struct vgx_sim_clock *all = &r->gathered[barrier][half].clock;
  if (r->gathered[barrier][half].waiting == (uint32_t)((1ull << r->warp_count) - 1))
    return;
  for (uint32_t left = r->gathered[barrier][half].waiting; left; left &= left - 1) {
    uint32_t own = all->of[__builtin_ctz(left)];
    join(all, &r->warps[__builtin_ctz(left)], r->warp_count);
    all->of[__builtin_ctz(left)] = own;
  }
}

static void resume(struct vgx_sim_races *r, uint32_t warp, uint32_t barrier) {
  uint32_t half = r->round[barrier][warp] & 1;
  if (!r->gathered[barrier][half].opened)
    open_barrier(r, barrier, half);
  if (r->gathered[barrier][half].waiting == (uint32_t)((1ull << r->warp_count) - 1)) { /* as in open_barrier */
    uint32_t own = r->warps[warp].of[warp];
    memcpy(&r->warps[warp], &r->gathered[barrier][half].clock, r->warp_count * sizeof own);
    r->warps[warp].of[warp] = own;
  } else {
    join(&r->warps[warp], &r->gathered[barrier][half].clock, r->warp_count);
  }
  r->known_objects[warp] = 0;
  if (r->gathered[barrier][half].whole && !r->gathered[barrier][half].opened)
    vgx_sim_race_clear_shared(r, r->gathered[barrier][half].warps); /* warps that go on have all arrived */
  r->gathered[barrier][half].opened = true;
}

void vgx_sim_races_sync(struct vgx_sim_races *r, uint32_t warp, const struct vgx_sim_sync_point *point,
                        uint32_t barrier) {
  if (warp >= r->warp_count || barrier >= VGX_SIM_RACE_BARRIERS)
    return;
  switch (point->sync) {
  case VGX_SIM_SYNC_WAIT:
  case VGX_SIM_SYNC_ARRIVE:
    arrive(r, warp, barrier, point->sync == VGX_SIM_SYNC_WAIT && point->expected == 0);
    if (barrier == VGX_SIM_CLUSTER_BARRIER)
      vgx_sim_race_fence(r);
    break;
  case VGX_SIM_SYNC_RESUME:
    resume(r, warp, barrier);
    if (barrier == VGX_SIM_CLUSTER_BARRIER)
      vgx_sim_race_acquire(r);
    break;
  case VGX_SIM_SYNC_FENCE:
    r->fenced |= 1u << warp;
    vgx_sim_race_fence(r);
    break;
  case VGX_SIM_SYNC_WARP:
    break;
  }
}

static void note_lanes(struct vgx_sim_race_access *a, const struct vgx_sim_warp_access *w) {
  for (uint32_t left = w->sizes ? w->mask : 0; left; left &= left - 1) {
    uint32_t lane = (uint32_t)__builtin_ctz(left);
    if (w->sizes[lane])
      vgx_sim_race_in_global(a, w->addresses[lane], w->sizes[lane], lane, 31);
  }
  if (w->sizes)
    return;
  uint32_t nbytes = a->site->nbytes, shift = 31 - (uint32_t)__builtin_clz(nbytes), first = 0;
  uint64_t begin = 0, end = 0;
  if (w->starts && w->mask == UINT32_MAX) {
    for (uint32_t left = w->starts; left; left &= left - 1) {
      uint32_t rest = left & (left - 1), lane = (uint32_t)__builtin_ctz(left);
      uint64_t at = w->addresses[lane], after = at + nbytes * ((rest ? (uint32_t)__builtin_ctz(rest) : 32) - lane);
      if (at >= begin && after <= end)
        continue; /* other lanes have it, too */
      vgx_sim_race_in_global(a, at, after - at, lane, shift);
      begin = at;
      end = after;
    }
    return;
  }
  uint32_t next = 32; /* the lane that would lengthen the row */
  for (uint32_t left = w->mask; left; left &= left - 1) {
    uint32_t lane = (uint32_t)__builtin_ctz(left);
    uint64_t at = w->addresses[lane];
    if (lane == next && at == end) {
      end += nbytes;
    } else if (at < begin || at + nbytes > end) { /* else another lane has it, too */
      if (end)
        vgx_sim_race_in_global(a, begin, end - begin, first, shift);
      begin = at;
      end = at + nbytes;
      first = lane;
    } else {
      continue;
    }
    next = lane + 1;
  }
  vgx_sim_race_in_global(a, begin, end - begin, first, shift);
}

static inline void note_rows(struct vgx_sim_race_access *a, uint64_t base) {
  uint32_t shift = 31 - (uint32_t)__builtin_clz(a->site->nbytes);
  for (uint32_t i = 0; i < a->site->row_count; i++) {
    const struct vgx_sim_row *row = &a->site->rows[i];
    vgx_sim_race_in_global(a, base + (uint64_t)(int64_t)row->offset, row->nbytes, row->lane, shift);
  }
}

static uint64_t objects_of(const struct vgx_sim_site *site, const struct vgx_sim_warp_access *w) {
  uint64_t objects = w->objects;
  if (objects)
    return objects;
  for (uint32_t i = 0; !w->addresses && i < site->row_count; i++)
    for (uint32_t at = 0; at < site->rows[i].nbytes; at += 4)
      objects |= 1ull << (w->base + (uint64_t)(int64_t)site->rows[i].offset + at) / 4 % VGX_SIM_RACE_OBJECTS;
  if (!w->addresses)
    return objects;
  for (uint32_t left = w->mask; left; left &= left - 1)
    objects |= 1ull << w->addresses[__builtin_ctz(left)] / 4 % VGX_SIM_RACE_OBJECTS;
  return objects;
}

static bool in_shared(struct vgx_sim_races *r, struct vgx_sim_race_access *a, const struct vgx_sim_warp_access *w) {
  if (!vgx_sim_race_reserve_shared(&r->shared, w->shared_nbytes))
    return false;
  if (w->base)
    vgx_sim_race_rows_in_shared(a, (uint32_t)(w->base - (uint64_t)a->thread->shared), w->mask);
  else
    vgx_sim_race_lanes_in_shared(a, w);
  return true;
}

/* Of lane 0, for all bytes; begins an epoch if one is due. */
static inline void set_note(struct vgx_sim_race_access *a, uint32_t number) {
  a->epoch = current_epoch(a->races, a->warp);
  vgx_sim_race_take_turn(a->epoch);
  a->note = (vgx_sim_note)a->epoch << VGX_SIM_NOTE_EPOCH | (vgx_sim_note)number << VGX_SIM_NOTE_SITE |
            (vgx_sim_note)a->warp << VGX_SIM_NOTE_WARP | VGX_SIM_ALL_BYTES | (a->ordered ? VGX_SIM_NOTE_ORDERED : 0);
}

bool vgx_sim_races_access(struct vgx_sim_watch *watch, struct vgx_sim_races *r, const struct vgx_sim_thread *thread,
                          const struct vgx_sim_site *site, const struct vgx_sim_warp_access *w) {
  struct vgx_sim_race_access a = {.watch = watch,
                                  .races = r,
                                  .thread = thread,
                                  .site = site,
                                  .values = w->values,
                                  .warp = thread->warp,
                                  .kind = vgx_sim_race_kind(site)};
  bool done = true;
  uint64_t first = w->addresses ? w->addresses[__builtin_ctz(w->mask)] : w->base;
  enum vgx_sim_space space = vgx_sim_space_of(first);
  uint32_t number = space == VGX_SIM_IN_SHARED ? 0 : vgx_sim_race_site_number(site);
  if (a.warp >= r->warp_count)
    return true;
  a.stores = a.kind == VGX_SIM_RACE_STORE || a.kind == VGX_SIM_RACE_ATOMIC;
  a.ordered = site->kind >= VGX_SIM_ATOMIC;
  bool releases = site->kind == VGX_SIM_RELEASE;
  if (site->kind == VGX_SIM_WRITE && (space == VGX_SIM_IN_GLOBAL || space == VGX_SIM_IN_HOST)) {
    a.ordered = releases = r->fenced >> a.warp & 1;
    r->fenced &= ~(1u << a.warp);
  }
  if (a.ordered)
    meet(r, a.warp, objects_of(site, w));
  /* A CTA's shared memory orders no CTAs, but the mbarriers of a cluster do. */
  bool between = a.ordered && (space != VGX_SIM_IN_SHARED || site->kind == VGX_SIM_OBJECT);
  if (between && !releases)
    vgx_sim_race_acquire(r);
  if (space == VGX_SIM_IN_SHARED)
    done = in_shared(r, &a, w);
  else if (number && space != VGX_SIM_IN_LOCAL && space != VGX_SIM_IN_PARAM) {
    set_note(&a, number);
    if (w->addresses)
      note_lanes(&a, w);
    else
      note_rows(&a, w->base);
  }
  if (between && a.stores)
    vgx_sim_race_fence(r);
  return done;
}

void vgx_sim_races_rows(struct vgx_sim_watch *watch, struct vgx_sim_races *r, const struct vgx_sim_thread *thread,
                        const struct vgx_sim_site *site, uint64_t base, const uint8_t *values) {
  struct vgx_sim_race_access a = {.watch = watch, .races = r, .thread = thread, .site = site, .values = values};
  uint32_t number = vgx_sim_race_site_number(site);
  a.warp = thread->warp;
  if (a.warp >= r->warp_count || !number)
    return;
  if (r->fenced >> a.warp & 1 && site->kind == VGX_SIM_WRITE) {
    vgx_sim_races_access(
        watch, r, thread, site,
        &(struct vgx_sim_warp_access){.base = base, .mask = UINT32_MAX, .values = values, .shared_nbytes = 0});
    return;
  }
  a.stores = site->kind == VGX_SIM_WRITE;
  a.kind = a.stores ? VGX_SIM_RACE_STORE : VGX_SIM_RACE_LOAD;
  set_note(&a, number);
  note_rows(&a, base);
  if (a.reported == 0)
    vgx_sim_race_rows_are_noted(site, base);
}
