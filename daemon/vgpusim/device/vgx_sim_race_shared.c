/* Racecheck in shared memory, exact. For each warp bitmaps say which granules it has accessed, and how, since the last
 * barrier of the whole CTA; a log says by which instruction. An access that meets no other warp's bit, which is nearly
 * every one, costs a few operations on bits. Else the log tells whether the other access is ordered before: it is in
 * order of time, so only what the other warp has done since this one last heard of it is looked at.
 *
 * The log keeps the last LOG_ENTRIES accesses of a warp; an older one that races is reported without its place. */
#define _GNU_SOURCE
#include "vgx_sim_race_shared.h"

#include "vgx_sim_race_trace.h"

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#define LOG_ENTRIES (1u << 14)
#define LOG_OFFSETS (1u << 12) /* of accesses whose lanes follow no pattern */
#define KINDS VGX_SIM_RACE_KINDS

/* A warp's access. Offsets from the begin of shared memory. */
struct entry {
  const struct vgx_sim_site *site;
  uint32_t clock, mask;
  uint32_t base;    /* of lane 0, if lanes act in the site's pattern */
  uint32_t offsets; /* else the number of its list, from 1 on */
};

/* Offsets of lanes. Bits of words that lanes access without a pattern are set when they are first looked at. */
struct list {
  uint32_t offsets[32];
  uint32_t mask, kind; /* kind KINDS: the bits are set */
};

struct vgx_sim_race_log {
  uint32_t count, list_count, first_clock; /* entries and lists since the log was cleared; the clock of the first */
  uint32_t unset;                          /* the number of the first list whose bits may not be set */
  struct entry entries[LOG_ENTRIES];
  struct list lists[LOG_OFFSETS];
};

static void *reserve(uint64_t nbytes) {
  void *got = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return got == MAP_FAILED ? NULL : got;
}

/* One bit for each byte at most. */
static uint64_t bits_nbytes(uint64_t room) { return (room / 64 + 1) * VGX_SIM_WARPS_MAX * KINDS * sizeof(uint64_t); }

bool vgx_sim_race_reserve_shared(struct vgx_sim_race_shared *s, uint64_t nbytes) {
  if (s->room >= nbytes)
    return true;
  vgx_sim_race_release_shared(s);
  s->room = (nbytes + 4095) & ~4095ull;
  s->bits = reserve(bits_nbytes(s->room));
  s->logs = reserve(VGX_SIM_WARPS_MAX * sizeof *s->logs);
  s->traces = vgx_sim_race_traces_create();
  if (!s->bits || !s->logs || !s->traces)
    vgx_sim_race_release_shared(s);
  s->granule = 2;
  s->low = UINT32_MAX;
  return s->bits != NULL;
}

void vgx_sim_race_release_shared(struct vgx_sim_race_shared *s) {
  if (s->bits)
    munmap(s->bits, bits_nbytes(s->room));
  if (s->logs)
    munmap(s->logs, VGX_SIM_WARPS_MAX * sizeof *s->logs);
  vgx_sim_race_traces_destroy(s->traces);
  *s = (struct vgx_sim_race_shared){0};
}

/* The four bitmaps of a warp, 64 granules. */
static uint64_t *bits_of(const struct vgx_sim_races *r, uint64_t index, uint32_t warp) {
  return r->shared.bits + (index * r->warp_count + warp) * KINDS;
}

void vgx_sim_race_clear_shared(struct vgx_sim_races *r, uint32_t warps) {
  struct vgx_sim_race_shared *s = &r->shared;
  uint32_t all = (uint32_t)((1ull << r->warp_count) - 1);
  if (!s->bits)
    return;
  if (warps == all)
    vgx_sim_race_traces_advance(s->traces);
  else
    vgx_sim_race_leave_trace(r);
  for (uint64_t index = s->low; index < s->high; index++)
    for (uint32_t left = warps; left && warps != all; left &= left - 1)
      memset(bits_of(r, index, (uint32_t)__builtin_ctz(left)), 0, KINDS * sizeof(uint64_t));
  if (warps == all && s->low < s->high)
    memset(bits_of(r, s->low, 0), 0, (s->high - s->low) * r->warp_count * KINDS * sizeof(uint64_t));
  for (uint32_t left = warps; left; left &= left - 1) {
    struct vgx_sim_race_log *log = &s->logs[__builtin_ctz(left)];
    if (s->users >> __builtin_ctz(left) & 1)
      log->count = log->list_count = 0;
  }
  s->unset &= ~warps;
  for (uint32_t kind = 0; kind < KINDS; kind++)
    s->active[kind] &= ~warps;
  s->users &= ~warps;
  if (warps == all) {
    s->low = UINT32_MAX;
    s->high = 0;
  }
}

static void set_words(struct vgx_sim_races *r, uint32_t warp, const struct list *list) {
  uint32_t low = r->shared.low, high = r->shared.high;
  uint64_t *mine = bits_of(r, 0, warp) + list->kind, step = (uint64_t)r->warp_count * KINDS;
  for (uint32_t left = list->mask; left; left &= left - 1) {
    uint32_t word = list->offsets[__builtin_ctz(left)] / 4, index = word / 64;
    mine[index * step] |= 1ull << word % 64;
    low = low < index ? low : index;
    high = high > index ? high : index + 1;
  }
  r->shared.low = low;
  r->shared.high = high;
}

/* Set the bits that these warps' lists lack. */
static void set_lists(struct vgx_sim_races *r, uint32_t warps) {
  for (uint32_t left = warps & r->shared.unset; left; left &= left - 1) {
    uint32_t warp = (uint32_t)__builtin_ctz(left);
    struct vgx_sim_race_log *log = &r->shared.logs[warp];
    for (uint32_t number = log->unset; number <= log->list_count; number++) {
      struct list *list = &log->lists[(number - 1) % LOG_OFFSETS];
      if (list->kind < KINDS)
        set_words(r, warp, list);
      list->kind = KINDS;
    }
  }
  r->shared.unset &= ~warps;
}

/* From words to bytes as granules. */
static void refine(struct vgx_sim_races *r) {
  struct vgx_sim_race_shared *s = &r->shared;
  set_lists(r, UINT32_MAX);
  for (uint64_t index = s->high; s->low < s->high && index-- > s->low;)
    for (uint32_t slot = 0; slot < r->warp_count * KINDS; slot++) {
      uint64_t words = bits_of(r, index, 0)[slot], bytes[4] = {0};
      for (uint32_t bit = 0; bit < 64; bit++)
        bytes[bit / 16] |= words >> bit & 1 ? 15ull << bit % 16 * 4 : 0;
      bits_of(r, index, 0)[slot] = 0;
      for (uint32_t part = 4; part-- > 0;)
        bits_of(r, index * 4 + part, 0)[slot] = bytes[part];
    }
  s->low = s->low < s->high ? s->low * 4 : s->low;
  s->high *= 4;
  s->granule = 0;
}

static uint32_t offset_of(const struct vgx_sim_site *site, uint32_t lane) {
  uint32_t offset = 0;
  for (uint32_t k = 0; k < 5; k++)
    offset += lane >> k & 1 ? (uint32_t)site->steps[k] : 0;
  return offset;
}

/* The lane and the instruction by which an access has this byte. False: it has not. */
static bool find_lane(const struct vgx_sim_race_log *log, const struct entry *e, uint32_t at, uint32_t *lane,
                      const struct vgx_sim_site **by) {
  const struct vgx_sim_site *site = e->site;
  *by = site;
  for (uint32_t left = !e->offsets && e->mask != UINT32_MAX ? e->mask : 0; left; left &= left - 1) {
    *lane = (uint32_t)__builtin_ctz(left);
    if (at - (e->base + offset_of(site, *lane)) < site->nbytes)
      return true;
  }
  for (uint32_t i = 0; !e->offsets && e->mask == UINT32_MAX && i < site->row_count; i++) {
    uint32_t offset = at - (e->base + (uint32_t)site->rows[i].offset);
    if (offset < site->rows[i].nbytes) {
      *by = site->rows[i].site ? site->rows[i].site : site;
      *lane = site->rows[i].lane + offset / (*by)->nbytes;
      return true;
    }
  }
  const uint32_t *offsets = e->offsets ? log->lists[(e->offsets - 1) % LOG_OFFSETS].offsets : NULL;
  for (uint32_t left = offsets ? e->mask : 0; left; left &= left - 1) {
    *lane = (uint32_t)__builtin_ctz(left);
    if (at - offsets[*lane] < (site->nbytes ? site->nbytes : 16))
      return true;
  }
  return false;
}

/* Look for the other warp's access of this kind to the granule that is not ordered before, and report it. */
static void search(struct vgx_sim_race_access *a, const struct entry *here, uint32_t other, uint32_t kind,
                   uint32_t at) {
  struct vgx_sim_races *r = a->races;
  const struct vgx_sim_race_log *log = &r->shared.logs[other];
  const struct vgx_sim_site *site = NULL;
  uint32_t heard = r->warps[a->warp].of[other], lane = 0, by = 0;
  uint64_t address = (uint64_t)a->thread->shared + at;
  bool stored = kind == VGX_SIM_RACE_STORE || kind == VGX_SIM_RACE_ATOMIC, found = false;
  for (uint32_t age = 0; !found && age < log->count && age < LOG_ENTRIES; age++) {
    const struct entry *e = &log->entries[(log->count - 1 - age) % LOG_ENTRIES];
    if (e->clock <= heard)
      return;
    if (e->offsets && log->list_count - e->offsets >= LOG_OFFSETS)
      break;
    found = vgx_sim_race_kind(e->site) == kind && find_lane(log, e, at, &by, &site);
  }
  if (!found && (log->first_clock <= heard || log->count == 0))
    return; /* what is no longer in the log may be ordered */
  const struct vgx_sim_site *group = a->site, *mine = a->site;
  if (!find_lane(&r->shared.logs[a->warp], here, at, &lane, &mine))
    return;
  a->site = mine;
  vgx_sim_race_found(a, &(struct vgx_sim_race_before){found ? site : NULL, r->cta, other * 32 + by}, stored, address,
                     lane);
  a->site = group;
}

/* By kind of access, the kinds of another warp's that it races with, bits. */
static const uint8_t rivals[KINDS] = {
    [VGX_SIM_RACE_LOAD] = 1 << VGX_SIM_RACE_STORE | 1 << VGX_SIM_RACE_ATOMIC,
    [VGX_SIM_RACE_STORE] = 15,
    [VGX_SIM_RACE_ATOMIC] = 1 << VGX_SIM_RACE_LOAD | 1 << VGX_SIM_RACE_STORE,
    [VGX_SIM_RACE_ACQUIRE] = 1 << VGX_SIM_RACE_STORE,
};

/* Other warps of whose accesses the warp has not heard, and that it could race with. Their bits are set. */
static uint32_t rivals_of(struct vgx_sim_races *r, uint32_t warp, uint32_t kind) {
  uint32_t found = 0;
  for (uint32_t k = 0; k < KINDS; k++)
    found |= rivals[kind] >> k & 1 ? r->shared.active[k] : 0;
  found &= ~(1u << warp);
  if (found & r->shared.unset)
    set_lists(r, found);
  return found;
}

static void meet(struct vgx_sim_race_access *a, const struct entry *here, uint64_t index, uint64_t bits,
                 uint32_t others) {
  struct vgx_sim_races *r = a->races;
  for (uint32_t left = others; left; left &= left - 1) {
    uint32_t other = (uint32_t)__builtin_ctz(left);
    const uint64_t *theirs = bits_of(r, index, other);
    for (uint32_t kind = 0; kind < KINDS; kind++)
      for (uint64_t hits = rivals[a->kind] >> kind & 1 ? theirs[kind] & bits : 0; hits; hits &= hits - 1)
        search(a, here, other, kind, (uint32_t)((index * 64 + (uint32_t)__builtin_ctzll(hits)) << r->shared.granule));
  }
}

/* Set the bits of a span, and look at those of others. */
static void span(struct vgx_sim_race_access *a, const struct entry *here, uint32_t others, uint32_t offset,
                 uint32_t nbytes) {
  struct vgx_sim_races *r = a->races;
  struct vgx_sim_race_shared *s = &r->shared;
  uint64_t begin = offset >> s->granule, end = (((uint64_t)offset + nbytes - 1) >> s->granule) + 1;
  if (offset > s->room || nbytes > s->room - offset)
    return;
  uint64_t first = begin / 64, last = (end - 1) / 64;
  s->low = s->low < first ? s->low : (uint32_t)first;
  s->high = s->high > last ? s->high : (uint32_t)last + 1;
  for (uint64_t index = first; index <= last; index++) {
    uint64_t bits = index == first ? UINT64_MAX << begin % 64 : UINT64_MAX;
    bits &= index == last ? UINT64_MAX >> (63 - (end - 1) % 64) : UINT64_MAX;
    uint64_t hit = 0;
    for (uint32_t left = others; left; left &= left - 1) {
      const uint64_t *theirs = bits_of(r, index, (uint32_t)__builtin_ctz(left));
      for (uint32_t kind = 0; kind < KINDS; kind++)
        hit |= rivals[a->kind] >> kind & 1 ? theirs[kind] : 0;
    }
    if (hit & bits) {
      vgx_sim_race_trace_leave(s->traces); /* as others may race in the same way */
      meet(a, here, index, bits, others);
    }
    bits_of(r, index, a->warp)[a->kind] |= bits;
  }
}

static struct entry *append(struct vgx_sim_race_access *a, uint32_t mask, uint32_t clock) {
  struct vgx_sim_races *r = a->races;
  struct vgx_sim_race_log *log = &r->shared.logs[a->warp];
  struct entry *e = &log->entries[log->count % LOG_ENTRIES];
  if (log->count++ == 0)
    log->first_clock = clock;
  e->site = a->site;
  e->clock = clock;
  e->mask = mask;
  r->shared.active[a->kind] |= 1u << a->warp;
  r->shared.users |= 1u << a->warp;
  return e;
}

static void note_rows(struct vgx_sim_race_access *a, uint32_t base, uint32_t mask, uint32_t clock) {
  const struct vgx_sim_site *site = a->site;
  uint32_t others = rivals_of(a->races, a->warp, a->kind);
  if (a->races->shared.granule && (base | site->nbytes) & 3)
    refine(a->races);
  struct entry *here = append(a, mask, clock);
  here->base = base;
  here->offsets = 0;
  for (uint32_t i = 0; mask == UINT32_MAX && i < site->span_count; i++)
    span(a, here, others, base + (uint32_t)site->spans[i].offset, site->spans[i].nbytes);
  uint32_t begin = 0, nbytes = 0;
  for (uint32_t left = mask == UINT32_MAX ? 0 : mask; left; left &= left - 1) {
    uint32_t at = base + offset_of(site, (uint32_t)__builtin_ctz(left));
    if (nbytes && at != begin + nbytes) {
      span(a, here, others, begin, nbytes);
      nbytes = 0;
    }
    begin = nbytes ? begin : at;
    nbytes += site->nbytes;
  }
  if (nbytes)
    span(a, here, others, begin, nbytes);
}

void vgx_sim_race_leave_trace(struct vgx_sim_races *r) {
  struct vgx_sim_race_traces *traces = r->shared.traces;
  struct vgx_sim_race_step step;
  uint32_t clock;
  if (!traces || vgx_sim_race_trace_phase(traces) == VGX_SIM_TRACE_LEFT)
    return;
  for (uint32_t warp = 0; warp < r->warp_count; warp++)
    for (uint32_t i = 0; vgx_sim_race_trace_followed(traces, warp, i, &step, &clock); i++) {
      struct vgx_sim_race_access a = {
          .races = r, .site = step.site, .warp = warp, .kind = vgx_sim_race_kind(step.site)};
      note_rows(&a, step.base, step.mask, clock); /* which races with nothing: it was traced once */
    }
  vgx_sim_race_trace_leave(traces);
}

void vgx_sim_race_rows_in_shared(struct vgx_sim_race_access *a, uint32_t base, uint32_t mask) {
  struct vgx_sim_race_traces *traces = a->races->shared.traces;
  uint32_t clock = a->races->warps[a->warp].of[a->warp];
  struct vgx_sim_race_step step = {a->site, base, mask};
  if (vgx_sim_race_trace_follow(traces, a->warp, clock, step))
    return;
  if (vgx_sim_race_trace_phase(traces) == VGX_SIM_TRACE_FOLLOWED)
    vgx_sim_race_leave_trace(a->races);
  vgx_sim_race_trace_record(traces, a->warp, step);
  note_rows(a, base, mask, clock);
}

bool vgx_sim_race_rows_are_traced(struct vgx_sim_races *r, uint32_t warp, const struct vgx_sim_site *site,
                                  uint64_t base, uint32_t mask) {
  struct vgx_sim_race_traces *traces = r->shared.traces;
  return traces && warp < r->warp_count && base < r->shared.room &&
         vgx_sim_race_trace_phase(traces) == VGX_SIM_TRACE_FOLLOWED &&
         vgx_sim_race_trace_follow(traces, warp, r->warps[warp].of[warp],
                                   (struct vgx_sim_race_step){site, (uint32_t)base, mask});
}

void vgx_sim_race_lanes_in_shared(struct vgx_sim_race_access *a, const struct vgx_sim_warp_access *w) {
  struct vgx_sim_races *r = a->races;
  vgx_sim_race_leave_trace(r);
  struct vgx_sim_race_log *log = &r->shared.logs[a->warp];
  uint32_t others = rivals_of(r, a->warp, a->kind), bit = 1u << a->warp;
  if (r->shared.unset & bit && log->list_count - log->unset >= LOG_OFFSETS - 1)
    set_lists(r, bit);
  struct list *list = &log->lists[log->list_count % LOG_OFFSETS];
  struct entry *here = append(a, w->mask, r->warps[a->warp].of[a->warp]);
  here->offsets = ++log->list_count;
  list->mask = w->mask;
  list->kind = KINDS;
  for (uint32_t lane = 0; lane < 32; lane++) /* of lanes that do not act: anything */
    list->offsets[lane] = (uint32_t)(w->addresses[lane] - (uint64_t)a->thread->shared);
  if (!others && !w->sizes && a->site->nbytes == 4 && r->shared.granule == 2) {
    list->kind = a->kind;
    log->unset = r->shared.unset & bit ? log->unset : here->offsets;
    r->shared.unset |= bit;
    return;
  }
  for (uint32_t left = w->mask; left; left &= left - 1) {
    uint32_t lane = (uint32_t)__builtin_ctz(left), nbytes = w->sizes ? w->sizes[lane] : a->site->nbytes;
    if (r->shared.granule && (list->offsets[lane] | nbytes) & 3)
      refine(r);
    if (nbytes)
      span(a, here, others, list->offsets[lane], nbytes);
  }
}
