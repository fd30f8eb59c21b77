/* Races: two accesses of the same bytes by different warps of a launch, one of them a store, with nothing between that
 * orders them.
 *
 * What a warp does between two points that order it with others is an epoch. Epochs are numbered as they begin; a note
 * of an access (vgx_sim_race_order.h) names its epoch. Within a CTA the order is exact: each warp has a vector clock,
 * and clocks are joined by barriers and, per address, by atomic operations, mbarriers, volatile and ordered accesses.
 * Between CTAs the order is a heuristic that may miss races but reports no false ones: an access is ordered after
 * another CTA's if that CTA has passed a fence or an atomic operation since, and this one has made an atomic or ordered
 * access since. A warp's first store after a fence counts as ordered, as it often sets a flag that others wait for by
 * volatile loads. Lanes of one warp run in lockstep here and are not compared, except that one store must not write
 * different values to one place.
 *
 * All of this is used by one thread at a time (vgx_sim_watch.c). */
#define _GNU_SOURCE
#include "vgx_sim_race_order.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "vgx_sim_reach.h"
#include "vgx_sim_watch_report.h"
#include "vgx_sim_watch_turn.h"

#define FENCES (1u << 16)
#define SITES (VGX_SIM_NOTE_SITE_MAX + 1)

struct vgx_sim_epochs vgx_sim_race_epochs = {.now = 1};
static uint32_t last_fence[FENCES], last_acquire[FENCES];
struct vgx_sim_numbered_site vgx_sim_race_sites[SITES];
static uint32_t site_count;

bool vgx_sim_race_reserve_epochs(void) {
  if (!vgx_sim_race_epochs.list) {
    void *got = mmap(NULL, VGX_SIM_EPOCHS * sizeof(struct vgx_sim_epoch), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    vgx_sim_race_epochs.list = got == MAP_FAILED ? NULL : got;
  }
  return vgx_sim_race_epochs.list != NULL;
}

uint32_t vgx_sim_race_last_epoch(void) { return vgx_sim_race_epochs.last; }

void vgx_sim_race_clear_epochs(void) { vgx_sim_race_epochs.last = vgx_sim_race_epochs.base = 0; }

void vgx_sim_race_end_epochs(void) { vgx_sim_race_epochs.base = vgx_sim_race_epochs.last; }

void vgx_sim_race_clear_sites(void) {
  if (site_count <= SITES / 2)
    return;
  memset(vgx_sim_race_sites, 0, sizeof vgx_sim_race_sites);
  site_count = 0;
}

uint32_t vgx_sim_race_find_site(const struct vgx_sim_site *site) {
  uint32_t number = vgx_sim_race_hash_of_site(site);
  for (uint32_t tries = 0; tries < 64; tries++, number = (number + 1) % SITES) {
    if (number && !vgx_sim_race_sites[number].site) {
      vgx_sim_race_sites[number].site = site;
      site_count++;
    }
    if (number && vgx_sim_race_sites[number].site == site) {
      vgx_sim_race_sites[number].nbytes =
          site->nbytes; /* another module's site may have the address of one that is gone */
      return number;
    }
  }
  return 0;
}

static const struct vgx_sim_site *site_of(vgx_sim_note n) {
  return vgx_sim_race_sites[n >> VGX_SIM_NOTE_SITE & (SITES - 1)].site;
}

uint32_t vgx_sim_race_site_nbytes(vgx_sim_note n) {
  return vgx_sim_race_sites[n >> VGX_SIM_NOTE_SITE & (SITES - 1)].nbytes;
}

/* Accesses have times: those before a fence are not later than it, those after it are later. */
void vgx_sim_race_fence(const struct vgx_sim_races *r) { last_fence[r->cta % FENCES] = vgx_sim_race_epochs.now++; }

void vgx_sim_race_acquire(const struct vgx_sim_races *r) { last_acquire[r->cta % FENCES] = vgx_sim_race_epochs.now++; }

static const struct vgx_sim_epoch *epoch_at(vgx_sim_note n) {
  uint32_t number = vgx_sim_epoch_of(n);
  bool kept = number > vgx_sim_race_epochs.base && number <= vgx_sim_race_epochs.last &&
              vgx_sim_race_epochs.last - number < VGX_SIM_EPOCHS;
  return kept ? &vgx_sim_race_epochs.list[(number - vgx_sim_race_epochs.base) % VGX_SIM_EPOCHS] : NULL;
}

bool vgx_sim_race_is_of_launch(const struct vgx_sim_races *r, vgx_sim_note n) {
  const struct vgx_sim_epoch *e = epoch_at(n);
  return e && e->launch == r->launch;
}

bool vgx_sim_race_is_same_warp(const struct vgx_sim_race_access *a, vgx_sim_note before) {
  const struct vgx_sim_races *r = a->races;
  if (vgx_sim_epoch_of(before) == a->epoch)
    return true;
  if (vgx_sim_warp_of(before) != a->warp || vgx_sim_epoch_of(before) < r->first_of_launch ||
      (r->alone && vgx_sim_epoch_of(before) < r->first))
    return false;
  const struct vgx_sim_epoch *e = epoch_at(before);
  return e && e->launch == r->launch && e->cta == r->cta;
}

bool vgx_sim_race_is_ordered(const struct vgx_sim_race_access *a, vgx_sim_note before) {
  const struct vgx_sim_races *r = a->races;
  uint32_t number = vgx_sim_epoch_of(before), warp = vgx_sim_warp_of(before);
  if (number == a->epoch || number < r->first_of_launch)
    return true;
  const struct vgx_sim_epoch *e = epoch_at(before);
  if (!e || e->launch != r->launch)
    return true;
  if (e->cta == r->cta)
    return warp == a->warp || number < r->first || r->warps[a->warp].of[warp] >= e->clock;
  return last_fence[e->cta % FENCES] >= e->time && last_acquire[r->cta % FENCES] >= e->time;
}

static const char *const names[] = {"read", "write", "atomic", "read", "write", "atomic"};

static void report(const struct vgx_sim_race_access *a, const struct vgx_sim_race_before *before, bool stored,
                   uint64_t address, uint32_t lane) {
  struct vgx_sim_report text;
  struct vgx_sim_watch *watch = a->watch;
  const uint32_t *block = watch->launch->block, *grid = watch->launch->grid;
  uint32_t thread = before->thread, cta = before->cta;
  char other[96], hazard[32];
  vgx_sim_watch_take_turn(watch, a->thread);
  snprintf(hazard, sizeof hazard, "%s-after-%s", a->stores ? "write" : "read", stored ? "write" : "read");
  watch->error_count++;
  if (!vgx_sim_report_admits(watch, a->site))
    return;
  vgx_sim_report_begin(&text, "race", watch);
  vgx_sim_report_text(&text, "hazard", hazard);
  vgx_sim_report_text(&text, "space", vgx_sim_space_of(address) == VGX_SIM_IN_SHARED ? "shared" : "global");
  vgx_sim_report_text(&text, "access", names[a->site->kind]);
  vgx_sim_report_text(&text, "text", a->site->text);
  vgx_sim_report_text(&text, "place", a->site->place);
  vgx_sim_report_number(&text, "nbytes", a->site->nbytes);
  vgx_sim_report_number(&text, "address", address);
  vgx_sim_report_place(&text, watch, a->thread, lane);
  vgx_sim_report_text(&text, "before", before->site ? names[before->site->kind] : stored ? "write" : "read");
  vgx_sim_report_text(&text, "before_place", before->site ? before->site->place : "a place that is not kept");
  snprintf(other, sizeof other, "[%u,%u,%u]", cta % grid[0], cta / grid[0] % grid[1], cta / grid[0] / grid[1]);
  vgx_sim_report_text(&text, "before_block", other);
  snprintf(other, sizeof other, "[%u,%u,%u]", thread % block[0], thread / block[0] % block[1],
           thread / block[0] / block[1]);
  vgx_sim_report_text(&text, "before_thread", other);
  vgx_sim_report_end(&text, watch->log);
}

/* Whether a store leaves the bytes as they are: then the order of two stores does not matter. */
static bool stores_the_same(const struct vgx_sim_race_access *a, uint64_t address, uint32_t lane) {
  return a->site->kind == VGX_SIM_WRITE && a->values && a->site->nbytes &&
         memcmp((const void *)address, a->values + lane * (size_t)a->site->nbytes, a->site->nbytes) == 0;
}

void vgx_sim_race_found(struct vgx_sim_race_access *a, const struct vgx_sim_race_before *before, bool stored,
                        uint64_t address, uint32_t lane) {
  uint32_t nbytes = a->site->nbytes;
  uint64_t begin = nbytes && (nbytes & (nbytes - 1)) == 0 ? address & ~(uint64_t)(nbytes - 1) : address;
  if (a->reported_site != a->site) {
    a->reported_site = a->site;
    a->reported = 0;
  }
  if (a->reported >> (lane & 31) & 1 || (stored && stores_the_same(a, begin, lane & 31)))
    return;
  a->reported |= 1u << (lane & 31);
  report(a, before, stored, begin, lane & 31);
}

void vgx_sim_race_meets(struct vgx_sim_race_access *a, vgx_sim_note before, bool stored, uint64_t address,
                        uint32_t lane) {
  const struct vgx_sim_epoch *e = epoch_at(before);
  if ((before & VGX_SIM_NOTE_ORDERED && a->note & VGX_SIM_NOTE_ORDERED) || !e || vgx_sim_race_is_ordered(a, before))
    return;
  uint32_t thread = vgx_sim_warp_of(before) * 32 + vgx_sim_lane_of(before);
  vgx_sim_race_found(a, &(struct vgx_sim_race_before){site_of(before), e->cta, thread}, stored, address, lane);
}
