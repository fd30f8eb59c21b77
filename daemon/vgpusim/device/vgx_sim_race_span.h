/* Racecheck's notes of rows and stripes in global memory: see vgx_sim_race_span.c. */
#ifndef VGX_SIM_RACE_SPAN_H
#define VGX_SIM_RACE_SPAN_H

#include "vgx_sim_race_order.h"

#define VGX_SIM_SPAN_NBYTES 128u

/* Rows that were loaded, or stored; all 0: none. */
struct vgx_sim_rows {
  uint8_t next, log2_nbytes, begin, unused; /* from `begin` on, without `next` */
};

struct vgx_sim_span {
  vgx_sim_note next[2];        /* the note that the next row would get, of loads and of stores; stripes: the first */
  struct vgx_sim_rows rows[2]; /* of loads and of stores */
  uint32_t divided;            /* an epoch: while its launch runs, segments have the notes */
  uint32_t stripes;            /* their number, kept for the next ones; 0: none yet */
};
_Static_assert(sizeof(struct vgx_sim_span) == 32, "two of them in a cache line");

extern struct vgx_sim_span *vgx_sim_spans; /* by address; NULL: memory is short */

/* How often an instruction has begun rows or stripes in this launch, and how often these were divided: by the site's
 * number, of which several may share one. */
struct vgx_sim_span_use {
  uint32_t begun, divided;
};
#define VGX_SIM_SPAN_USES 256u
extern struct vgx_sim_span_use vgx_sim_span_uses[VGX_SIM_SPAN_USES];

static inline struct vgx_sim_span_use *vgx_sim_span_use_of(vgx_sim_note note) {
  return &vgx_sim_span_uses[note >> VGX_SIM_NOTE_SITE & (VGX_SIM_SPAN_USES - 1)];
}

/* Whether an instruction may begin another one: not where it mostly takes the longer way in the end. */
static inline bool vgx_sim_race_may_begin(vgx_sim_note note) {
  struct vgx_sim_span_use *use = vgx_sim_span_use_of(note);
  if (use->divided > 64 && use->divided > use->begun / 4)
    return false;
  use->begun++;
  return true;
}

bool vgx_sim_race_reserve_spans(void);
/* A launch begins. */
void vgx_sim_race_reset_uses(void);
void vgx_sim_race_clear_spans(void);
/* Leave the notes of a span to its segments. */
void vgx_sim_race_divide_span(const struct vgx_sim_race_access *a, uint64_t address);

static inline uint64_t vgx_sim_span_number(uint64_t address) {
  return (address - VGX_SIM_REACH_BEGIN) / VGX_SIM_SPAN_NBYTES;
}

/* Between the notes of one row and of the next one. */
#define VGX_SIM_ROW_STEP ((1ll << VGX_SIM_NOTE_EPOCH) + (1ll << VGX_SIM_NOTE_WARP))

static inline bool vgx_sim_race_is_empty(const struct vgx_sim_span *s, uint32_t first_of_launch) {
  return vgx_sim_epoch_of(s->next[0]) <= first_of_launch && vgx_sim_epoch_of(s->next[1]) <= first_of_launch;
}

/* Whether the row is one of those, of another epoch. */
static inline bool vgx_sim_race_is_of_other(const struct vgx_sim_span *s, uint32_t kind, uint32_t row, uint32_t epoch) {
  const struct vgx_sim_rows *rows = &s->rows[kind];
  return row >= rows->begin && row < rows->next && vgx_sim_epoch_of(s->next[kind]) - (rows->next - row) != epoch;
}

/* Note that a warp loads or stores a row of 2^log2_nbytes bytes, a multiple of which `at` is. `note`: of lane 0. False:
 * segments have to do it. */
static inline __attribute__((always_inline)) bool
vgx_sim_race_record_row(uint32_t first_of_launch, vgx_sim_note note, bool stores, uint64_t at, uint32_t log2_nbytes) {
  struct vgx_sim_span *s = &vgx_sim_spans[vgx_sim_span_number(at)];
  struct vgx_sim_rows *own = &s->rows[stores], *others = &s->rows[!stores];
  uint32_t row = (uint32_t)(at % VGX_SIM_SPAN_NBYTES) >> log2_nbytes, epoch = vgx_sim_epoch_of(note);
  bool empty = vgx_sim_race_is_empty(s, first_of_launch);
  if (s->divided >= first_of_launch || (empty && !vgx_sim_race_may_begin(note)))
    return false;
  if (empty)
    s->next[!stores] = 0, *others = (struct vgx_sim_rows){0};
  if (!empty && (others->next ? others : own)->log2_nbytes != log2_nbytes)
    return false;
  if (!empty && vgx_sim_race_is_of_other(s, !stores, row, epoch))
    return false;
  if (empty || own->next == 0) {
    s->next[stores] = note + VGX_SIM_ROW_STEP;
    *own = (struct vgx_sim_rows){(uint8_t)(row + 1), (uint8_t)log2_nbytes, (uint8_t)row, 0};
    return true;
  }
  if (own->next == row && s->next[stores] == note) { /* the next row, by the next warp */
    s->next[stores] = note + VGX_SIM_ROW_STEP;
    own->next++;
    return true;
  }
  return row >= own->begin && row < own->next && !vgx_sim_race_is_of_other(s, stores, row, epoch);
}

/* The note of a warp's accesses now, without a site. 0: numbers are used up, or nothing is noted yet. */
static inline vgx_sim_note vgx_sim_race_note_of(struct vgx_sim_races *r, uint32_t warp) {
  if (warp >= r->warp_count || !vgx_sim_spans)
    return 0;
  uint64_t epoch = vgx_sim_race_wide_epoch(r, warp); /* 64 bits, as reading one that was spilled as 32 stalls */
  uint64_t rest = (uint64_t)warp << VGX_SIM_NOTE_WARP | VGX_SIM_ALL_BYTES;
  return epoch ? (vgx_sim_note)(epoch << VGX_SIM_NOTE_EPOCH | rest) : 0;
}

/* Note a plain load or store of all lanes whose pattern is a row. False: more is to be looked at. */
static inline __attribute__((always_inline)) bool vgx_sim_race_is_row_noted(const struct vgx_sim_races *r,
                                                                            vgx_sim_note own,
                                                                            const struct vgx_sim_site *site,
                                                                            uint64_t base) {
  uint32_t log2_nbytes = site->pattern;
  bool stores = site->kind == VGX_SIM_WRITE;
  if (!own || log2_nbytes <= VGX_SIM_PATTERN_STRIPES || (stores && r->fenced >> vgx_sim_warp_of(own) & 1) ||
      base - VGX_SIM_REACH_BEGIN >= VGX_SIM_SLOTS_BEGIN - VGX_SIM_REACH_BEGIN || base & ((1ull << log2_nbytes) - 1) ||
      !vgx_sim_race_is_hash_number(site))
    return false;
  vgx_sim_note note = own | (vgx_sim_note)vgx_sim_race_hash_of_site(site) << VGX_SIM_NOTE_SITE;
  return vgx_sim_race_record_row(r->first_of_launch, note, stores, base, log2_nbytes);
}

/* Note what all lanes load or store at equal distances. False: segments have to do it. */
bool vgx_sim_race_record_stripes(uint32_t first_of_launch, vgx_sim_note note, const struct vgx_sim_site *site,
                                 uint64_t base);

#endif
