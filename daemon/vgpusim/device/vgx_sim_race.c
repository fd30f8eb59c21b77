/* Races: two accesses of the same bytes by different warps of a launch, one of them a store, with nothing between that
 * orders them. For each word the last store and the last load are kept.
 *
 * Within a CTA the order is exact: each warp has a vector clock, and clocks are joined by barriers and, per address, by
 * atomic operations, mbarriers, volatile and ordered accesses. Between CTAs the order is a heuristic that may miss
 * races but reports no false ones: an access is ordered after another CTA's if that CTA has passed a fence or an atomic
 * operation since, and this one has made an atomic or ordered access since. Lanes of one warp run in lockstep here and
 * are not compared, except that one store must not write different values to one place. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "vgx_sim_race.h"
#include "vgx_sim_reach.h"
#include "vgx_sim_watch_report.h"

#define WARPS VGX_SIM_WARPS_MAX
#define BARRIERS 17u
#define OBJECTS 64u
#define FENCES (1u << 16)
#define WORD_NBYTES 4u
#define DEVICES_NBYTES (VGW_PINNED_BEGIN - VGW_DEVICE_MEMORY_BEGIN)

struct note { /* of an access */
  const struct vgx_sim_site *site;
  uint64_t launch;
  uint32_t cta, clock, time;
  uint8_t warp, lane, bytes; /* bytes of the word, bits */
  bool ordered, several;     /* an atomic or volatile access; loads of several warps */
};

struct word {
  struct note store, load;
};

struct clock {
  uint32_t of[WARPS];
};

struct races {
  uint64_t launch, cta;
  struct clock warps[WARPS]; /* each warp's vector clock */
  struct clock gathered[BARRIERS][2];
  uint32_t round[BARRIERS][WARPS], gathered_round[BARRIERS][2];
  struct clock objects[OBJECTS];
  struct word *shared; /* of the CTA */
  uint64_t shared_words;
};

struct vgx_sim_races {
  struct races r;
};

static struct word *global_words; /* by device address */
static uint32_t now = 1;          /* counts the operations that order CTAs */
static uint32_t last_fence[FENCES], last_acquire[FENCES];

struct vgx_sim_races *vgx_sim_races_create(void) {
  if (!global_words) {
    void *got = mmap(NULL, VGW_DEVICE_MEMORY_NBYTES / WORD_NBYTES * sizeof(struct word), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    global_words = got == MAP_FAILED ? NULL : got;
  }
  return calloc(1, sizeof(struct vgx_sim_races));
}

void vgx_sim_races_destroy(struct vgx_sim_races *races) {
  if (races)
    free(races->r.shared);
  free(races);
}

static void join(struct clock *to, const struct clock *from) {
  for (uint32_t i = 0; i < WARPS; i++)
    to->of[i] = to->of[i] < from->of[i] ? from->of[i] : to->of[i];
}

void vgx_sim_races_begin(struct vgx_sim_races *races, uint64_t launch_id, uint64_t cta) {
  struct races *r = &races->r;
  struct word *shared = r->shared;
  uint64_t words = r->shared_words;
  memset(r, 0, sizeof *r);
  r->shared = shared;
  r->shared_words = words;
  r->launch = launch_id;
  r->cta = cta;
  for (uint32_t w = 0; w < WARPS; w++)
    r->warps[w].of[w] = 1;
  if (shared)
    memset(shared, 0, words * sizeof *shared);
}

/* Release and acquire the object: threads that use it are ordered after those that have used it before. */
static void meet(struct races *r, uint32_t warp, uint64_t address) {
  struct clock *object = &r->objects[(address / WORD_NBYTES) % OBJECTS];
  join(&r->warps[warp], object);
  join(object, &r->warps[warp]);
  r->warps[warp].of[warp]++;
}

static void arrive(struct races *r, uint32_t warp, uint32_t barrier) {
  uint32_t round = ++r->round[barrier][warp], half = round & 1;
  if (r->gathered_round[barrier][half] != round) { /* the first warp at the barrier in this round */
    r->gathered_round[barrier][half] = round;
    memset(&r->gathered[barrier][half], 0, sizeof r->gathered[barrier][half]);
  }
  join(&r->gathered[barrier][half], &r->warps[warp]);
  r->warps[warp].of[warp]++;
}

static void fence(const struct races *r) { last_fence[r->cta % FENCES] = ++now; }

static void acquire(const struct races *r) { last_acquire[r->cta % FENCES] = ++now; }

void vgx_sim_races_sync(struct vgx_sim_races *races, uint32_t warp, const struct vgx_sim_sync_point *point) {
  struct races *r = &races->r;
  if (warp >= WARPS || point->number >= BARRIERS)
    return;
  switch (point->sync) {
  case VGX_SIM_SYNC_WAIT:
  case VGX_SIM_SYNC_ARRIVE:
    arrive(r, warp, point->number);
    break;
  case VGX_SIM_SYNC_RESUME:
    join(&r->warps[warp], &r->gathered[point->number][r->round[point->number][warp] & 1]);
    break;
  case VGX_SIM_SYNC_FENCE:
    fence(r);
    break;
  case VGX_SIM_SYNC_WARP:
    break;
  }
}

static bool is_ordered(const struct races *r, const struct note *before, uint32_t warp) {
  if (before->launch != r->launch)
    return true;
  if (before->cta == (uint32_t)r->cta)
    return before->warp == warp ? !before->several
                                : r->warps[warp].of[before->warp] >= before->clock && !before->several;
  return last_fence[before->cta % FENCES] >= before->time && last_acquire[r->cta % FENCES] >= before->time;
}

static struct word *word_of(struct races *r, const struct vgx_sim_thread *thread, uint64_t address,
                            uint64_t shared_nbytes) {
  if (vgx_sim_space_of(address) == VGX_SIM_IN_SHARED) {
    uint64_t offset = address - (uint64_t)thread->shared, words = (shared_nbytes + WORD_NBYTES - 1) / WORD_NBYTES;
    if (r->shared_words < words) {
      struct word *grown = realloc(r->shared, words * sizeof *grown);
      if (!grown)
        return NULL;
      memset(grown + r->shared_words, 0, (words - r->shared_words) * sizeof *grown);
      r->shared = grown;
      r->shared_words = words;
    }
    return offset < shared_nbytes ? &r->shared[offset / WORD_NBYTES] : NULL;
  }
  uint64_t offset = address - VGW_DEVICE_MEMORY_BEGIN; /* of the first device */
  return global_words && address >= VGW_DEVICE_MEMORY_BEGIN && offset < VGW_DEVICE_MEMORY_NBYTES
             ? &global_words[offset / WORD_NBYTES]
             : NULL;
}

static const char *const names[] = {"read", "write", "atomic", "read", "write", "atomic"};

static void report(struct vgx_sim_watch *watch, const struct vgx_sim_thread *thread,
                   const struct vgx_sim_lane_access *a, const struct note *before, bool stored) {
  struct vgx_sim_report text;
  const uint32_t *block = watch->launch->block, *grid = watch->launch->grid;
  uint32_t number = before->warp * 32u + before->lane;
  char other[96], hazard[32];
  bool stores = a->site->kind != VGX_SIM_READ && a->site->kind != VGX_SIM_ACQUIRE;
  snprintf(hazard, sizeof hazard, "%s-after-%s", stores ? "write" : "read", stored ? "write" : "read");
  watch->error_count++;
  if (!vgx_sim_report_admits(a->site))
    return;
  vgx_sim_report_begin(&text, "race", watch);
  vgx_sim_report_text(&text, "hazard", hazard);
  vgx_sim_report_text(&text, "space", vgx_sim_space_of(a->address) == VGX_SIM_IN_SHARED ? "shared" : "global");
  vgx_sim_report_text(&text, "access", names[a->site->kind]);
  vgx_sim_report_text(&text, "text", a->site->text);
  vgx_sim_report_text(&text, "place", a->site->place);
  vgx_sim_report_number(&text, "nbytes", a->nbytes);
  vgx_sim_report_number(&text, "address", a->address);
  vgx_sim_report_place(&text, watch, thread, a->lane);
  vgx_sim_report_text(&text, "before", names[before->site->kind]);
  vgx_sim_report_text(&text, "before_place", before->site->place);
  snprintf(other, sizeof other, "[%u,%u,%u]", before->cta % grid[0], before->cta / grid[0] % grid[1],
           before->cta / grid[0] / grid[1]);
  vgx_sim_report_text(&text, "before_block", other);
  snprintf(other, sizeof other, "[%u,%u,%u]", number % block[0], number / block[0] % block[1],
           number / block[0] / block[1]);
  vgx_sim_report_text(&text, "before_thread", other);
  vgx_sim_report_end(&text, watch->log);
}

/* Whether a store leaves the bytes as they are: then the order of two stores does not matter. */
static bool stores_the_same(const struct vgx_sim_lane_access *a) {
  return a->site->kind == VGX_SIM_WRITE && a->value && memcmp((const void *)a->address, a->value, a->nbytes) == 0;
}

static bool races_with(const struct races *r, const struct note *before, const struct note *here) {
  return before->site && before->bytes & here->bytes && !(before->ordered && here->ordered) &&
         !is_ordered(r, before, here->warp);
}

void vgx_sim_races_access(struct vgx_sim_watch *watch, struct vgx_sim_races *races, const struct vgx_sim_thread *thread,
                          const struct vgx_sim_lane_access *a, uint64_t shared_nbytes) {
  struct races *r = &races->r;
  uint32_t warp = thread->warp;
  enum vgx_sim_access_kind kind = a->site->kind;
  bool ordered = kind >= VGX_SIM_ATOMIC, stores = kind != VGX_SIM_READ && kind != VGX_SIM_ACQUIRE, told = false;
  bool loads = kind != VGX_SIM_WRITE && kind != VGX_SIM_RELEASE;
  if (warp >= WARPS)
    return;
  if (ordered)
    meet(r, warp, a->address);
  if (ordered && stores)
    fence(r);
  if (ordered && loads)
    acquire(r);
  bool same = stores_the_same(a);
  for (uint64_t at = a->address; at < a->address + a->nbytes;) {
    uint64_t next = (at / WORD_NBYTES + 1) * WORD_NBYTES, end = a->address + a->nbytes;
    end = end < next ? end : next;
    struct word *word = word_of(r, thread, at, shared_nbytes);
    if (!word)
      return;
    uint32_t bytes = (1u << ((end - at) & 7)) - 1; /* at most the word's 4 */
    struct note here = {.site = a->site,
                        .launch = r->launch,
                        .cta = (uint32_t)r->cta,
                        .clock = r->warps[warp].of[warp],
                        .time = now,
                        .warp = (uint8_t)warp,
                        .lane = (uint8_t)a->lane,
                        .bytes = (uint8_t)(bytes << at % WORD_NBYTES),
                        .ordered = ordered};
    if (!told && !same && races_with(r, &word->store, &here)) {
      report(watch, thread, a, &word->store, true);
      told = true;
    } else if (!told && stores && races_with(r, &word->load, &here)) {
      report(watch, thread, a, &word->load, false);
      told = true;
    }
    if (stores)
      word->store = here;
    else {
      const struct note *load = &word->load;
      here.several = load->site && load->launch == r->launch && load->bytes & here.bytes &&
                     (load->several ? load->cta == here.cta && !is_ordered(r, load, WARPS - 1)
                                    : load->warp != warp && !is_ordered(r, load, warp));
      word->load = here;
    }
    at = end;
  }
}
