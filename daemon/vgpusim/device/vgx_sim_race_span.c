/* Racecheck outside of shared memory, while accesses follow a simple pattern: one note for many.
 *
 * A span is 128 bytes. It has rows as long as they are loaded, and stored, one after another by warps whose epochs and
 * numbers follow each other, by one instruction each: the note of the first row says all. It has stripes as long as one
 * warp, in one epoch, accesses it by instructions whose lanes are at equal distances, as fields of structures are: of
 * these it has a list. Anything else divides it: its segments (vgx_sim_race_segment.c) get the notes that they would
 * have got without spans, and stay in use until the launch ends. */
#define _GNU_SOURCE
#include "vgx_sim_race_span.h"

#include <string.h>
#include <sys/mman.h>

#include "vgx_sim_race_segment.h"

#define SPANS ((VGX_SIM_SLOTS_BEGIN - VGX_SIM_REACH_BEGIN) / VGX_SIM_SPAN_NBYTES)
#define STRIPES (1u << 28)
#define STRIPES_OF_SPAN 7u

/* What one warp has accessed of a span. */
struct stripes {
  uint32_t count;
  struct {
    uint32_t site; /* its number */
    int32_t base;  /* lane 0's address, from the span on */
  } list[STRIPES_OF_SPAN];
};

struct vgx_sim_span *vgx_sim_spans;
static struct stripes *all_stripes;
static uint32_t used_stripes;

struct vgx_sim_span_use vgx_sim_span_uses[VGX_SIM_SPAN_USES];

void vgx_sim_race_reset_uses(void) { memset(vgx_sim_span_uses, 0, sizeof vgx_sim_span_uses); }

bool vgx_sim_race_reserve_spans(void) {
  if (!all_stripes)
    all_stripes = vgx_sim_race_reserve(STRIPES * sizeof *all_stripes);
  if (!vgx_sim_spans && all_stripes)
    vgx_sim_spans = vgx_sim_race_reserve(SPANS * sizeof *vgx_sim_spans);
  return vgx_sim_spans != NULL;
}

void vgx_sim_race_clear_spans(void) {
  if (all_stripes)
    madvise(all_stripes, STRIPES * sizeof *all_stripes, MADV_DONTNEED);
  if (vgx_sim_spans)
    madvise(vgx_sim_spans, SPANS * sizeof *vgx_sim_spans, MADV_DONTNEED);
  used_stripes = 0;
}

/* The access of a note. */
static struct vgx_sim_race_access access_of(const struct vgx_sim_race_access *a, vgx_sim_note note,
                                            const struct vgx_sim_site *site) {
  return (struct vgx_sim_race_access){.watch = a->watch,
                                      .races = a->races,
                                      .thread = a->thread,
                                      .site = site,
                                      .note = note,
                                      .warp = vgx_sim_warp_of(note),
                                      .epoch = vgx_sim_epoch_of(note),
                                      .kind = vgx_sim_race_kind(site),
                                      .stores = site->kind == VGX_SIM_WRITE};
}

static void divide_rows(const struct vgx_sim_race_access *a, const struct vgx_sim_span *s, uint64_t address) {
  for (uint32_t kind = 0; kind < 2; kind++) {
    uint32_t log2_nbytes = s->rows[kind].log2_nbytes, nbytes = 1u << log2_nbytes, count = s->rows[kind].next;
    struct vgx_sim_site site = {.nbytes = nbytes / 32, .kind = kind ? VGX_SIM_WRITE : VGX_SIM_READ};
    if (count)
      vgx_sim_span_use_of(s->next[kind])->divided++;
    for (uint32_t row = s->rows[kind].begin; row < count; row++) {
      struct vgx_sim_race_access b = access_of(a, s->next[kind] - (count - row) * VGX_SIM_ROW_STEP, &site);
      if (vgx_sim_race_is_of_launch(a->races, b.note)) /* the clocks are those of its CTAs */
        vgx_sim_race_in_segments(&b, address + (uint64_t)nbytes * row, nbytes, 0, log2_nbytes - 5);
    }
  }
}

static void divide_stripes(const struct vgx_sim_race_access *a, const struct stripes *stripes, vgx_sim_note note,
                           uint64_t address) {
  uint64_t end = address + VGX_SIM_SPAN_NBYTES;
  if (!vgx_sim_race_is_of_launch(a->races, note))
    return; /* of another launch, whose sites may be gone */
  for (uint32_t i = 0; i < stripes->count; i++) {
    const struct vgx_sim_site *site = vgx_sim_race_sites[stripes->list[i].site].site;
    if (!site)
      continue; /* a launch that has begun since has cleared all sites */
    uint32_t shift = 31 - (uint32_t)__builtin_clz(site->nbytes);
    if (i == 0)
      vgx_sim_span_uses[stripes->list[0].site % VGX_SIM_SPAN_USES].divided++;
    vgx_sim_note own = (note & ~VGX_SIM_NOTE_SITES) | (vgx_sim_note)stripes->list[i].site << VGX_SIM_NOTE_SITE;
    struct vgx_sim_race_access b = access_of(a, own, site);
    for (uint32_t k = 0; k < site->row_count; k++) {
      uint64_t at = address + (uint64_t)(int64_t)stripes->list[i].base + (uint64_t)(int64_t)site->rows[k].offset;
      uint64_t from = at < address ? address : at, until = at + site->rows[k].nbytes;
      until = until < end ? until : end;
      if (from < until)
        vgx_sim_race_in_segments(&b, from, until - from, site->rows[k].lane + (uint32_t)((from - at) >> shift), shift);
    }
  }
}

void vgx_sim_race_divide_span(const struct vgx_sim_race_access *a, uint64_t address) {
  struct vgx_sim_span *s = &vgx_sim_spans[vgx_sim_span_number(address)], before = *s;
  address -= (address - VGX_SIM_REACH_BEGIN) % VGX_SIM_SPAN_NBYTES;
  *s = (struct vgx_sim_span){.divided = vgx_sim_race_last_epoch(), .stripes = s->stripes};
  if (vgx_sim_race_is_empty(&before, a->races->first_of_launch))
    return;
  if (before.rows[0].next || before.rows[1].next)
    divide_rows(a, &before, address);
  else
    divide_stripes(a, &all_stripes[before.stripes], before.next[0] - VGX_SIM_ROW_STEP, address);
}

static bool add_stripe(struct stripes *stripes, uint32_t site, int32_t base) {
  for (uint32_t i = 0; i < stripes->count; i++)
    if (stripes->list[i].site == site && stripes->list[i].base == base)
      return true;
  if (stripes->count == STRIPES_OF_SPAN)
    return false;
  stripes->list[stripes->count].site = site;
  stripes->list[stripes->count++].base = base;
  return true;
}

bool vgx_sim_race_record_stripes(uint32_t first_of_launch, vgx_sim_note note, const struct vgx_sim_site *site,
                                 uint64_t base) {
  uint64_t begin = base + (uint64_t)(int64_t)site->low, end = base + (uint64_t)(int64_t)site->high + site->nbytes;
  vgx_sim_note own = note & ~VGX_SIM_NOTE_SITES; /* of the warp's epoch */
  uint32_t number = (uint32_t)(note >> VGX_SIM_NOTE_SITE) & VGX_SIM_NOTE_SITE_MAX;
  if (begin < VGX_SIM_REACH_BEGIN || end > VGX_SIM_SLOTS_BEGIN)
    return false;
  for (uint64_t i = vgx_sim_span_number(begin); i <= vgx_sim_span_number(end - 1); i++) {
    struct vgx_sim_span *s = &vgx_sim_spans[i];
    if (s->divided >= first_of_launch)
      return false;
    if (vgx_sim_race_is_empty(s, first_of_launch)) {
      if ((!s->stripes && used_stripes == STRIPES - 1) || !vgx_sim_race_may_begin(note))
        return false;
      *s = (struct vgx_sim_span){.next = {own + VGX_SIM_ROW_STEP},
                                 .divided = s->divided, /* by a launch that runs, too */
                                 .stripes = s->stripes ? s->stripes : ++used_stripes};
      all_stripes[s->stripes].count = 0;
    } else if (s->rows[0].next || s->rows[1].next || s->next[0] - VGX_SIM_ROW_STEP != own) {
      return false;
    }
    if (!add_stripe(&all_stripes[s->stripes], number, (int32_t)(base - VGX_SIM_REACH_BEGIN - i * VGX_SIM_SPAN_NBYTES)))
      return false;
  }
  return true;
}
