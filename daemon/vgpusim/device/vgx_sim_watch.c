/* The sanitizer's checks of accesses: bounds, alignment, and those of each tool. See vgx_sim_watch.h. */
#include "vgx_sim_watch.h"

#include <stdlib.h>
#include <string.h>

#include "vgx_sim_fault.h"
#include "vgx_sim_race.h"
#include "vgx_sim_race_ahead.h"
#include "vgx_sim_race_global.h"
#include "vgx_sim_race_shared.h"
#include "vgx_sim_race_span.h"
#include "vgx_sim_reach.h"
#include "vgx_sim_watch_cta.h"
#include "vgx_sim_watch_extent.h"
#include "vgx_sim_watch_lane.h"
#include "vgx_sim_watch_lock.h"
#include "vgx_sim_watch_memory.h"
#include "vgx_sim_watch_part.h"
#include "vgx_sim_watch_report.h"
#include "vgx_sim_watch_sync.h"
#include "vgx_sim_watch_turn.h"

enum { SUCCESS = 0, ILLEGAL_ADDRESS = 700, MISALIGNED_ADDRESS = 716 };

static uint64_t launch_count; /* of the process; atomic */

static uint64_t count_ctas(const struct vgx_sim_watch *watch) {
  return watch->resident ? watch->launch->cta_count : VGX_SIM_WATCH_THREADS;
}

void vgx_sim_watch_begin(struct vgx_sim_watch *watch, uint32_t tools, const char *kernel,
                         const struct vgx_sim_launch *launch, bool resident) {
  *watch = (struct vgx_sim_watch){.tools = tools, .kernel = kernel, .launch = launch, .resident = resident};
  watch->begin_turn = vgx_sim_race_begin_turn;
  watch->ctas = calloc(count_ctas(watch), sizeof *watch->ctas);
  __atomic_add_fetch(&launch_count, 1, __ATOMIC_RELAXED);
}

void vgx_sim_watch_end(struct vgx_sim_watch *watch) {
  vgx_sim_watch_take(watch); /* the launch has ended: its thread does nothing here any more */
  for (uint64_t i = 0; watch->ctas && i < count_ctas(watch); i++) {
    vgx_sim_races_destroy(watch->ctas[i].races);
    free(watch->ctas[i].shared_defined);
    free(watch->ctas[i].unset);
  }
  free(watch->ctas);
  watch->ctas = NULL;
  vgx_sim_watch_release(watch);
}

/* The allocation that the thread's last access by an instruction lay in, while it is known to be there. */
struct held {
  struct vgx_sim_range range;
  const uint64_t *generation;
  uint64_t seen;
};
static _Thread_local struct held held[VGX_SIM_KNOWN_COUNT];

static struct held *held_by(const struct vgx_sim_site *site) { return &held[site->known % VGX_SIM_KNOWN_COUNT]; }

/* Whether the whole allocation of the last access is written. Written bytes stay written while they are allocated, so a
 * long allocation is not scanned repeatedly. */
static bool is_all_written(const struct held *last) {
  static _Thread_local struct {
    uint64_t address, seen, allocations;
  } written[16];
  static _Thread_local uint32_t oldest;
  uint64_t allocations = vgx_sim_watch_allocations();
  for (uint32_t i = 0; i < 16; i++)
    if (written[i].address == last->range.address && written[i].seen == last->seen &&
        written[i].allocations == allocations)
      return true;
  if (!vgx_sim_is_defined(last->range.address, last->range.nbytes))
    return false;
  written[oldest].address = last->range.address;
  written[oldest].seen = last->seen;
  written[oldest].allocations = allocations;
  oldest = (oldest + 1) % 16;
  return true;
}

/* A correct access remains correct, so the kernel need not report it again. For initcheck that is true once the whole
 * allocation is written, which is checked once per instruction and allocation. */
static void let_know(const struct vgx_sim_watch *watch, struct vgx_sim_thread *thread, const struct vgx_sim_site *site,
                     uint64_t address) {
  enum vgx_sim_space space = vgx_sim_space_of(address);
  struct vgx_sim_known *known = &thread->known[site->known % VGX_SIM_KNOWN_COUNT];
  const struct held *last = held_by(site);
  bool defines = watch->tools & VGX_SIM_INITCHECK;
  if (space == VGX_SIM_IN_SHARED && !(watch->tools & VGX_SIM_INITCHECK_SHARED))
    thread->known_shared_nbytes = vgx_sim_watch_shared_nbytes(watch);
  if ((space != VGX_SIM_IN_GLOBAL && space != VGX_SIM_IN_HOST) || !last->generation)
    return;
  bool looked_at =
      known->begin == last->range.address && known->generation == last->generation && known->seen == last->seen;
  if (defines && looked_at)
    return;
  bool right = !defines || is_all_written(last);
  *known = (struct vgx_sim_known){last->range.address, last->range.address + (right ? last->range.nbytes : 0),
                                  last->generation, last->seen};
}

/* Whether the bytes are in one live allocation, or in the CTA's own memory. */
static bool is_inside(const struct vgx_sim_watch *watch, const struct vgx_sim_thread *thread,
                      const struct vgx_sim_site *site, uint64_t address, uint32_t nbytes) {
  struct held *last = held_by(site);
  struct vgx_sim_placed a;
  uint64_t offset = address - (uint64_t)thread->shared;
  switch (vgx_sim_space_of(address)) {
  case VGX_SIM_IN_SHARED:
    return offset <= vgx_sim_watch_shared_nbytes(watch) && nbytes <= vgx_sim_watch_shared_nbytes(watch) - offset;
  case VGX_SIM_IN_LOCAL:
  case VGX_SIM_IN_PARAM:
    return true; /* inside the thread's slot: an access outside of it faults by itself */
  case VGX_SIM_IN_HOST:
  case VGX_SIM_IN_GLOBAL:
    break;
  }
  if (!last->generation || __atomic_load_n(last->generation, __ATOMIC_ACQUIRE) != last->seen ||
      address < last->range.address || address - last->range.address >= last->range.nbytes) {
    if (!watch->look(address, &a))
      return false;
    last->range = watch->pages ? (struct vgx_sim_range){.address = a.pages, .nbytes = a.pages_end - a.pages}
                               : (struct vgx_sim_range){.address = a.address, .nbytes = a.nbytes};
    last->generation = a.generation;
    last->seen = a.generation ? __atomic_load_n(a.generation, __ATOMIC_ACQUIRE) : 0;
  }
  return address >= last->range.address && nbytes <= last->range.nbytes &&
         address - last->range.address <= last->range.nbytes - nbytes;
}

static int32_t access_lane(struct vgx_sim_watch *watch, struct vgx_sim_cta_watch *cta,
                           const struct vgx_sim_thread *thread, const struct vgx_sim_lane_access *a) {
  if (a->address % a->site->align) {
    vgx_sim_report_access(watch, thread, "misaligned", a);
    return MISALIGNED_ADDRESS;
  }
  if (!vgx_sim_is_reachable(a->address) || !is_inside(watch, thread, a->site, a->address, a->nbytes)) {
    vgx_sim_report_access(watch, thread, "invalid", a);
    return ILLEGAL_ADDRESS;
  }
  if (watch->tools & VGX_SIM_INITCHECKS)
    vgx_sim_check_defined(watch, cta, thread, a);
  return SUCCESS;
}

/* Initcheck for shared memory, which all lanes access: check that what they read was written, and record what they
 * write. */
static bool are_defined_shared(struct vgx_sim_watch *watch, struct vgx_sim_thread *thread,
                               const struct vgx_sim_site *site, const uint64_t *addresses, uint32_t mask) {
  struct vgx_sim_cta_watch *cta = vgx_sim_cta_watch_of(watch, thread);
  uint64_t begin = (uint64_t)thread->shared;
  if (!cta || !cta->shared_defined)
    return false;
  for (uint32_t left = vgx_sim_site_reads(site) ? mask : 0; left; left &= left - 1)
    if (memchr(cta->shared_defined + (addresses[__builtin_ctz(left)] - begin), 0, site->nbytes))
      return false;
  for (uint32_t left = vgx_sim_site_writes(site) ? mask : 0; left; left &= left - 1)
    vgx_sim_define_shared(cta, addresses[__builtin_ctz(left)] - begin, site->nbytes);
  if (cta->undefined_nbytes == 0)
    thread->known_shared_nbytes = vgx_sim_watch_shared_nbytes(watch); /* until the next CTA begins */
  return true;
}

/* Whether all lanes' accesses are correct because the range that holds them is. False: check each lane. */
static bool are_inside(struct vgx_sim_watch *watch, struct vgx_sim_thread *thread, const struct vgx_sim_site *site,
                       const struct vgx_sim_warp_access *w) {
  const uint64_t *addresses = w->addresses;
  uint32_t mask = w->mask;
  struct vgx_sim_extent all = w->starts && mask == UINT32_MAX
                                  ? vgx_sim_extent_of_rows(addresses, w->starts, site->nbytes)
                                  : vgx_sim_extent_of_lanes(addresses, mask);
  uint64_t least = all.least, bits = all.bits, span = all.most - least + site->nbytes;
  if (!mask || bits & (site->align - 1) || !vgx_sim_is_reachable(least) || span > UINT32_MAX ||
      !is_inside(watch, thread, site, least, (uint32_t)span))
    return false;
  if (vgx_sim_space_of(least) == VGX_SIM_IN_SHARED)
    return !(watch->tools & VGX_SIM_INITCHECK_SHARED) || are_defined_shared(watch, thread, site, addresses, mask);
  if (!(watch->tools & VGX_SIM_INITCHECK) || vgx_sim_space_of(least) != VGX_SIM_IN_GLOBAL)
    return true;
  for (uint64_t next = least; mask; mask &= mask - 1, next += site->nbytes) /* a row, without gaps */
    if (addresses[__builtin_ctz(mask)] != next)
      return false;
  if (vgx_sim_site_reads(site) && !vgx_sim_is_defined(least, span))
    return false;
  if (vgx_sim_site_writes(site))
    vgx_sim_watch_defined(least, span);
  return true;
}

/* Whether all lanes' accesses are right, so far as no tool looks at each. */
static bool are_right(struct vgx_sim_watch *watch, struct vgx_sim_thread *thread, const struct vgx_sim_site *site,
                      const struct vgx_sim_warp_access *w) {
  if (w->sizes || !are_inside(watch, thread, site, w))
    return false;
  let_know(watch, thread, site, w->addresses[__builtin_ctz(w->mask)]);
  return true;
}

static bool ascend(const uint64_t *addresses, uint32_t mask, uint32_t nbytes) {
  uint64_t end = 0;
  for (; mask; mask &= mask - 1) {
    uint64_t at = addresses[__builtin_ctz(mask)];
    if (at < end)
      return false;
    end = at + nbytes;
  }
  return true;
}

/* Whether an access ahead of the CTA's turn is all done. False: it is to be noted now; unless it is of shared memory,
 * it is the CTA's turn from now on. */
static bool is_done_ahead(struct vgx_sim_watch *watch, const struct vgx_sim_thread *thread,
                          const struct vgx_sim_site *site, const struct vgx_sim_warp_access *w, bool right,
                          bool is_known) {
  struct vgx_sim_races *races = vgx_sim_cta_watch_of(watch, thread)->races;
  enum vgx_sim_space space = vgx_sim_space_of(w->addresses ? w->addresses[__builtin_ctz(w->mask)] : w->base);
  bool plain = right && site->kind <= VGX_SIM_WRITE && !w->sizes;
  if (plain && (space == VGX_SIM_IN_LOCAL || space == VGX_SIM_IN_PARAM))
    return true;
  if (plain && site->kind == VGX_SIM_READ && space != VGX_SIM_IN_SHARED &&
      (w->addresses ? vgx_sim_race_delay_lanes(races, thread->warp, site, w, is_known)
                    : vgx_sim_race_delay_rows(races, thread->warp, site, w->base, is_known)))
    return true;
  if (!right || space != VGX_SIM_IN_SHARED || site->kind == VGX_SIM_OBJECT)
    vgx_sim_watch_take_turn(watch, thread);
  return false;
}

static int32_t watch_access(struct vgx_sim_watch *watch, struct vgx_sim_thread *thread, const struct vgx_sim_site *site,
                            struct vgx_sim_warp_access *w, bool is_known) {
  struct vgx_sim_lane_access lanes[32];
  const uint64_t *addresses = w->addresses;
  const uint8_t *values = w->values;
  uint32_t count = 0, mask = w->mask, all = mask;
  int32_t result = SUCCESS;
  bool races = watch->tools & VGX_SIM_RACECHECK;
  bool right = !watch->services->stores_unset && (is_known || are_right(watch, thread, site, w));
  if (!mask || (right && !races))
    return SUCCESS;
  vgx_sim_watch_lock(watch, thread);
  if (vgx_sim_watch_is_ahead(watch, thread) && is_done_ahead(watch, thread, site, w, right, is_known))
    return SUCCESS;
  struct vgx_sim_cta_watch *cta = vgx_sim_cta_watch_of(watch, thread);
  bool one_by_one = !right || (site->kind == VGX_SIM_WRITE && values && !ascend(addresses, mask, site->nbytes));
  for (; mask && one_by_one; mask &= mask - 1) {
    uint32_t lane = (uint32_t)__builtin_ctz(mask), nbytes = w->sizes ? w->sizes[lane] : site->nbytes;
    lanes[count] = (struct vgx_sim_lane_access){site, addresses[lane], nbytes, lane,
                                                values ? values + lane * (size_t)site->nbytes : NULL};
    int32_t wrong = right ? SUCCESS : access_lane(watch, cta, thread, &lanes[count]);
    count++;
    result = result ? result : wrong;
  }
  w->shared_nbytes = vgx_sim_watch_shared_nbytes(watch);
  if (races && cta && cta->races && !result)
    vgx_sim_races_access(watch, cta->races, thread, site, w);
  if (races && count && site->kind == VGX_SIM_WRITE && values && !result)
    vgx_sim_check_lanes(watch, thread, lanes, count);
  if (count && !result && !right)
    let_know(watch, thread, site, addresses[__builtin_ctz(all)]);
  if (vgx_sim_site_writes(site) && watch->services->stores_unset)
    watch->services->stores_unset = 0;
  vgx_sim_watch_unlock(watch);
  return result;
}

/* A warp whose lanes all act: races, if that is all there is to look at. False: look at each lane. */
static bool watch_row(struct vgx_sim_watch *watch, struct vgx_sim_thread *thread, const struct vgx_sim_site *site,
                      uint64_t base, const uint8_t *values, bool is_known) {
  uint64_t least = base + (uint64_t)(int64_t)site->low;
  uint32_t span = (uint32_t)(site->high - site->low) + site->nbytes;
  if (!(watch->tools & VGX_SIM_RACECHECK) || (site->kind == VGX_SIM_WRITE && !site->distinct))
    return false;
  if (!is_known && (watch->tools & VGX_SIM_INITCHECKS || base & (site->align - 1) || !vgx_sim_is_reachable(least) ||
                    !is_inside(watch, thread, site, least, span)))
    return false;
  if (!is_known)
    let_know(watch, thread, site, least);
  vgx_sim_watch_lock(watch, thread);
  if (vgx_sim_watch_is_ahead(watch, thread) &&
      is_done_ahead(watch, thread, site, &(struct vgx_sim_warp_access){.base = base, .mask = UINT32_MAX}, true,
                    is_known))
    return true;
  struct vgx_sim_cta_watch *cta = vgx_sim_cta_watch_of(watch, thread);
  bool plain = site->kind <= VGX_SIM_WRITE && base >= VGX_SIM_REACH_BEGIN && base < VGX_SIM_SLOTS_BEGIN;
  if (cta && cta->races && plain && vgx_sim_race_rows_in_global(cta->races, thread->warp, site, base))
    ; /* noted */
  else if (cta && cta->races && plain)
    vgx_sim_races_rows(watch, cta->races, thread, site, base, values);
  else if (cta && cta->races)
    vgx_sim_races_access(
        watch, cta->races, thread, site,
        &(struct vgx_sim_warp_access){
            .base = base, .mask = UINT32_MAX, .values = values, .shared_nbytes = vgx_sim_watch_shared_nbytes(watch)});
  vgx_sim_watch_unlock(watch);
  return true;
}

/* The state for notes without a lock; NULL: not to be had. */
static inline struct vgx_sim_races *quick_races(struct vgx_sim_watch *watch, const struct vgx_sim_thread *thread,
                                                const struct vgx_sim_site *site, bool is_shared) {
  const struct vgx_sim_watched_thread *watched = vgx_sim_watched(watch, thread);
  bool quick = watch->tools & VGX_SIM_RACECHECK && site->kind <= VGX_SIM_WRITE && vgx_sim_is_last_cta(watched, thread);
  return quick && (watched->ahead ? is_shared : vgx_sim_watch_is_locked(watch)) ? watched->last->races : NULL;
}

/* What watch_row does, where that is little and needs no lock: a thread may be stopped at any point of it, as in the
 * kernel's own code. False: nothing is done, or part of what watch_row will do. */
static inline __attribute__((always_inline)) bool is_noted(struct vgx_sim_watch *watch,
                                                           const struct vgx_sim_thread *thread,
                                                           const struct vgx_sim_site *site, uint64_t base,
                                                           bool is_known) {
  bool is_shared = vgx_sim_space_of(base) == VGX_SIM_IN_SHARED;
  struct vgx_sim_races *races = quick_races(watch, thread, site, is_shared);
  if (!races || (site->kind == VGX_SIM_WRITE && !site->distinct))
    return false;
  if (!(watch->tools & VGX_SIM_INITCHECKS) && is_shared)
    return vgx_sim_race_rows_are_traced(races, thread->warp, site, base - (uint64_t)thread->shared, UINT32_MAX);
  return is_known && !is_shared && vgx_sim_race_rows_in_global(races, thread->warp, site, base);
}

static void serve_lanes(struct vgx_sim_services *services, struct vgx_sim_thread *thread,
                        const struct vgx_sim_site *site, struct vgx_sim_warp_access *w, bool is_known) {
  struct vgx_sim_watch *watch = services->watch;
  vgx_sim_service_begin();
  int32_t result = watch_access(watch, thread, site, w, is_known);
  vgx_sim_service_end();
  if (result)
    services->bad_access(services, result, watch->finding.text, watch->finding.address, watch->finding.cta,
                         watch->finding.thread);
}

/* The state for a load from global memory ahead of the CTA's turn; NULL: it is none. */
static inline struct vgx_sim_races *races_ahead(struct vgx_sim_watch *watch, const struct vgx_sim_thread *thread,
                                                const struct vgx_sim_site *site, uint64_t address) {
  const struct vgx_sim_watched_thread *watched = vgx_sim_watched(watch, thread);
  bool loads = watched->ahead && site->kind == VGX_SIM_READ && vgx_sim_is_last_cta(watched, thread) &&
               vgx_sim_space_of(address) == VGX_SIM_IN_GLOBAL;
  return loads ? watched->last->races : NULL;
}

void vgx_sim_serve_access(struct vgx_sim_services *services, struct vgx_sim_thread *thread,
                          const struct vgx_sim_site *site, const uint64_t *addresses, uint32_t mask,
                          const uint8_t *values, const uint32_t *sizes, uint32_t starts, uint32_t is_known,
                          uint64_t objects) {
  struct vgx_sim_watch *watch = services->watch;
  struct vgx_sim_warp_access w = {
      .addresses = addresses, .mask = mask, .values = values, .sizes = sizes, .starts = starts, .objects = objects};
  bool rows = is_known && starts & 1 && mask == UINT32_MAX && !sizes;
  struct vgx_sim_races *races = watch && rows ? quick_races(watch, thread, site, false) : NULL;
  struct vgx_sim_races *ahead = watch && rows ? races_ahead(watch, thread, site, addresses[0]) : NULL;
  if (!watch || (races && vgx_sim_race_lanes_in_global(races, thread->warp, site, addresses, starts)) ||
      (ahead && vgx_sim_race_delay_lanes(ahead, thread->warp, site, &w, true)))
    return;
  serve_lanes(services, thread, site, &w, is_known);
}

uint32_t vgx_sim_serve_group(struct vgx_sim_services *services, struct vgx_sim_thread *thread,
                             const struct vgx_sim_site *site, uint64_t base, uint32_t mask) {
  if (!services->watch || mask != UINT32_MAX || !(services->watch->tools & VGX_SIM_RACECHECK))
    return 0;
  if (is_noted(services->watch, thread, site, base, false))
    return 1;
  vgx_sim_service_begin();
  bool done = watch_row(services->watch, thread, site, base, NULL, false);
  vgx_sim_service_end();
  return done;
}

/* The same where some lanes do not act, in the site's pattern. */
static bool is_some_noted(struct vgx_sim_watch *watch, const struct vgx_sim_thread *thread,
                          const struct vgx_sim_site *site, uint64_t base, uint32_t mask, const uint64_t *addresses,
                          bool is_known) {
  bool is_shared = vgx_sim_space_of(base) == VGX_SIM_IN_SHARED;
  struct vgx_sim_races *races = mask ? quick_races(watch, thread, site, is_shared) : NULL;
  if (!races || (site->kind == VGX_SIM_WRITE && !site->distinct))
    return false;
  if (!(watch->tools & VGX_SIM_INITCHECKS) && is_shared)
    return vgx_sim_race_rows_are_traced(races, thread->warp, site, base - (uint64_t)thread->shared, mask);
  return is_known && !is_shared && vgx_sim_race_some_in_global(races, thread->warp, site, addresses, mask);
}

/* Of all lanes: where lane 0's is known. */
static void set_addresses(const struct vgx_sim_site *site, uint64_t base, uint64_t addresses[32]) {
  addresses[0] = base;
  for (uint32_t k = 0; k < 5; k++)
    for (uint32_t lane = 0; lane < 1u << k; lane++)
      addresses[(1u << k) + lane] = addresses[lane] + (uint64_t)(int64_t)site->steps[k];
}

static __attribute__((noinline)) void serve_row(struct vgx_sim_services *services, struct vgx_sim_thread *thread,
                                                const struct vgx_sim_site *site, uint64_t base, uint32_t mask,
                                                const uint8_t *values, uint32_t is_known) {
  uint64_t addresses[32];
  struct vgx_sim_races *ahead =
      services->watch && mask == UINT32_MAX && is_known ? races_ahead(services->watch, thread, site, base) : NULL;
  if (ahead && vgx_sim_race_delay_rows(ahead, thread->warp, site, base, true))
    return;
  if (!services->watch || (mask == UINT32_MAX && is_noted(services->watch, thread, site, base, is_known)))
    return;
  if (mask == UINT32_MAX) {
    vgx_sim_service_begin();
    bool done = watch_row(services->watch, thread, site, base, values, is_known);
    vgx_sim_service_end();
    if (done)
      return;
  }
  set_addresses(site, base, addresses);
  bool traced = site->kind == VGX_SIM_READ || (site->kind == VGX_SIM_WRITE && site->distinct);
  if (mask == UINT32_MAX || !is_some_noted(services->watch, thread, site, base, mask, addresses, is_known))
    serve_lanes(services, thread, site,
                &(struct vgx_sim_warp_access){
                    .addresses = addresses, .base = traced ? base : 0, .mask = mask, .values = values},
                is_known);
}

/* The state for notes without a lock, of the CTA that begins if it is another one than before; NULL: not to be had. */
static inline struct vgx_sim_races *races_of(struct vgx_sim_watch *watch, const struct vgx_sim_thread *thread) {
  const struct vgx_sim_watched_thread *watched = vgx_sim_watched(watch, thread);
  if (!watched->last || watched->ahead || !watched->last->races || !vgx_sim_watch_is_locked(watch))
    return NULL;
  if (vgx_sim_is_last_cta(watched, thread))
    return watched->last->races;
  if (watch->resident || watch->in_order || watch->tools != VGX_SIM_RACECHECK)
    return NULL;
  return vgx_sim_cta_watch_of(watch, thread)->races;
}

/* The commonest access first, with little code: a row of global memory. */
void vgx_sim_serve_row(struct vgx_sim_services *services, struct vgx_sim_thread *thread,
                       const struct vgx_sim_site *site, uint64_t base, uint32_t mask, const uint8_t *values,
                       uint32_t is_known) {
  struct vgx_sim_watch *watch = services->watch;
  struct vgx_sim_races *races = watch && mask == UINT32_MAX && is_known ? races_of(watch, thread) : NULL;
  if (!races || !vgx_sim_race_is_row_noted(races, vgx_sim_race_note_of(races, thread->warp), site, base))
    serve_row(services, thread, site, base, mask, values, is_known);
}

uint32_t vgx_sim_serve_pair(struct vgx_sim_services *services, struct vgx_sim_thread *thread,
                            const struct vgx_sim_site *first, uint64_t base, const struct vgx_sim_site *second,
                            uint64_t second_base) {
  struct vgx_sim_races *races = services->watch ? races_of(services->watch, thread) : NULL;
  vgx_sim_note own = races ? vgx_sim_race_note_of(races, thread->warp) : 0;
  if (first && !(own && vgx_sim_race_is_row_noted(races, own, first, base))) {
    serve_row(services, thread, first, base, UINT32_MAX, NULL, true);
    return 0;
  }
  return second && own && vgx_sim_race_is_row_noted(races, own, second, second_base);
}

void vgx_sim_serve_unset(struct vgx_sim_services *services, struct vgx_sim_thread *thread,
                         const struct vgx_sim_site *site, uint32_t mask, uint32_t stores) {
  struct vgx_sim_watch *watch = services->watch;
  if (!watch)
    return;
  vgx_sim_service_begin();
  vgx_sim_watch_lock(watch, thread);
  struct vgx_sim_cta_watch *cta = vgx_sim_cta_watch_of(watch, thread);
  for (uint32_t left = stores ? 0 : mask; left; left &= left - 1)
    vgx_sim_report_unset(watch, cta, thread, (uint32_t)__builtin_ctz(left), site);
  if (stores) { /* the access must be announced */
    watch->services->stores_unset = 1;
    thread->known_shared_nbytes = 0;
    for (uint32_t i = 0; i < VGX_SIM_KNOWN_COUNT; i++)
      thread->known[i].begin = thread->known[i].end = 0;
  }
  vgx_sim_watch_unlock(watch);
  vgx_sim_service_end();
}

void vgx_sim_serve_sync(struct vgx_sim_services *services, const struct vgx_sim_thread *thread,
                        const struct vgx_sim_sync_point *point) {
  if (!services->watch)
    return;
  vgx_sim_service_begin();
  vgx_sim_watch_sync(services->watch, thread, point);
  vgx_sim_service_end();
}

void vgx_sim_watch_totals(void (*log)(const char *format, ...)) {
  struct vgx_sim_report r;
  vgx_sim_report_begin(&r, "launches", NULL);
  vgx_sim_report_number(&r, "count", __atomic_load_n(&launch_count, __ATOMIC_RELAXED));
  vgx_sim_report_end(&r, log);
  struct vgx_sim_range leaked;
  for (uint64_t i = 0; vgx_sim_tools & VGX_SIM_LEAKCHECK && vgx_sim_watch_live(i, &leaked); i++) {
    vgx_sim_report_begin(&r, "leak", NULL);
    vgx_sim_report_number(&r, "address", leaked.address);
    vgx_sim_report_number(&r, "nbytes", leaked.nbytes);
    vgx_sim_report_stack(&r, "allocated_by", leaked.allocated_by);
    vgx_sim_report_end(&r, log);
  }
  vgx_sim_report_totals(log);
}
