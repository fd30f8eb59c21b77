/* Racecheck outside of shared memory: the entries, and notes of simple accesses that no other access could race with,
 * made without a lock. vgx_sim_race_segment.c looks at all others. */
#include "vgx_sim_race_global.h"
#include "vgx_sim_race_segment.h"
#include "vgx_sim_race_span.h"
#include "vgx_sim_reach.h"

#define SEGMENT_NBYTES VGX_SIM_SEGMENT_NBYTES
#define LINE_NBYTES VGX_SIM_LINE_NBYTES

enum { STORE = VGX_SIM_STORED, LOAD = VGX_SIM_LOADED, OTHER_LOAD = VGX_SIM_LOADED_BY_OTHER };
enum { WHOLE = VGX_SIM_WHOLE, HALVES = VGX_SIM_HALVES };

uint32_t vgx_sim_race_noted_epoch, vgx_sim_race_turn = 1;

static inline bool is_fresh(const struct vgx_sim_segment *segment, vgx_sim_note first) {
  return segment->notes[STORE] < first && segment->notes[LOAD] < first;
}

void vgx_sim_race_in_global(struct vgx_sim_race_access *a, uint64_t address, uint64_t nbytes, uint32_t lane,
                            uint32_t log2_nbytes) {
  static bool told;
  if (address < VGX_SIM_REACH_BEGIN || address + nbytes > VGX_SIM_SLOTS_BEGIN)
    return;
  if (!vgx_sim_race_reserve_segments() || !vgx_sim_race_reserve_spans()) {
    if (!told)
      a->watch->log("racecheck: the address space is too small: races in global memory are not looked for");
    told = true;
    return;
  }
  vgx_sim_note first = (vgx_sim_note)a->races->first_of_launch << VGX_SIM_NOTE_EPOCH;
  for (uint64_t at = address; at < address + nbytes; at += SEGMENT_NBYTES - at % SEGMENT_NBYTES)
    if (is_fresh(&vgx_sim_segments[(at - VGX_SIM_REACH_BEGIN) / SEGMENT_NBYTES], first) &&
        vgx_sim_spans[vgx_sim_span_number(at)].divided < a->races->first_of_launch)
      vgx_sim_race_divide_span(a, at);
  vgx_sim_fetch_ahead((uint32_t)((uint64_t)a->note >> VGX_SIM_NOTE_SITE), address, lane);
  vgx_sim_race_in_segments(a, address, nbytes, lane, log2_nbytes);
}

void vgx_sim_race_clear_global(void) {
  vgx_sim_race_clear_segments();
  vgx_sim_race_clear_spans();
  vgx_sim_race_turn++;
}

/* Rows that were noted last, by a hash of what is compared. */
static struct noted {
  uint64_t address;
  uint32_t nbytes, turn;
  bool stored;
} noted[64];

static inline struct noted *place_of(uint64_t address, bool stored) {
  return &noted[((uint32_t)(address / 4) ^ (uint32_t)(address / 256) ^ stored) % 64];
}

static inline bool are_noted(const struct vgx_sim_site *site, uint64_t address) {
  bool stored = site->kind == VGX_SIM_WRITE;
  const struct noted *last = place_of(address, stored);
  return last->turn == vgx_sim_race_turn && last->address == address && last->nbytes == site->rows[0].nbytes &&
         last->stored == stored;
}

static inline void remember(const struct vgx_sim_site *site, uint64_t address) {
  bool stored = site->kind == VGX_SIM_WRITE;
  *place_of(address, stored) = (struct noted){address, site->rows[0].nbytes, vgx_sim_race_turn, stored};
}

void vgx_sim_race_rows_are_noted(const struct vgx_sim_site *site, uint64_t base) {
  if (site->row_count == 1)
    remember(site, base + (uint64_t)(int64_t)site->rows[0].offset);
}

/* A note of this launch, by another epoch. */
static inline bool is_foreign(vgx_sim_note before, vgx_sim_note first, uint32_t epoch) {
  return before >= first && vgx_sim_epoch_of(before) != epoch;
}

/* A warp's loads or stores by one instruction. */
struct quick {
  vgx_sim_note first, note; /* the launch's first; of lane 0 */
  uint32_t number, shift;
  bool stores;
  vgx_sim_note own; /* notes of the CTA's warps are those from here on; 0: not known */
};

/* Whether a segment without notes is in use, or can be from now on. False: its span has to be divided. */
static inline bool is_used(uint64_t at, vgx_sim_note first, vgx_sim_note note) {
  struct vgx_sim_span *span = &vgx_sim_spans[vgx_sim_span_number(at)];
  if (span->divided >= vgx_sim_epoch_of(first))
    return true;
  if (!vgx_sim_race_is_empty(span, vgx_sim_epoch_of(first)))
    return false;
  *span = (struct vgx_sim_span){.divided = vgx_sim_epoch_of(note), .stripes = span->stripes};
  return true;
}

/* Note a load or store of a half. False: more is to be looked at. */
static inline bool note_half_quickly(struct vgx_sim_segment *segment, vgx_sim_note note, vgx_sim_note first,
                                     bool stores, uint64_t at) {
  uint32_t half = at % SEGMENT_NBYTES != 0;
  vgx_sim_note before = segment->notes[half];
  if (is_fresh(segment, first)) {
    if (!is_used(at, first, note))
      return false;
    *segment = (struct vgx_sim_segment){.form = HALVES, .stored = (uint32_t)stores << half};
    segment->notes[half] = note;
    return true;
  }
  if (segment->form != HALVES)
    return false;
  if (before >= first && ((segment->stored >> half & 1) != stores || is_foreign(before, first, vgx_sim_epoch_of(note))))
    return false;
  segment->notes[half] = note;
  segment->stored = (segment->stored & ~(1u << half)) | (uint32_t)stores << half;
  return true;
}

/* The same of all of a segment. */
static inline bool note_quickly(const struct quick *q, struct vgx_sim_segment *segment, uint64_t at,
                                vgx_sim_note note) {
  vgx_sim_note *notes = segment->notes, first = q->first;
  bool stores = q->stores;
  uint32_t epoch = vgx_sim_epoch_of(note);
  if (is_fresh(segment, first)) {
    if (!is_used(at, first, note))
      return false;
    *segment = (struct vgx_sim_segment){.form = WHOLE};
    notes[stores ? STORE : LOAD] = note;
    return true;
  }
  if (segment->form != WHOLE)
    return false;
  vgx_sim_note loaded = notes[LOAD];
  if (is_foreign(notes[STORE], first, epoch))
    return false;
  if (stores) {
    if (is_foreign(loaded, first, epoch) || is_foreign(notes[OTHER_LOAD], first, epoch))
      return false;
    notes[STORE] = note;
    return true;
  }
  if (is_foreign(loaded, first, epoch)) {
    bool same_number = vgx_sim_warp_of(loaded) == vgx_sim_warp_of(note);
    if (same_number && !q->own)
      return false;
    if (!same_number || loaded < q->own)
      notes[OTHER_LOAD] = loaded;
  }
  notes[LOAD] = note;
  return true;
}

/* False: the instruction's accesses are not that simple. `epoch`: of the warp. */
static inline bool begin_quickly(struct quick *q, const struct vgx_sim_races *r, uint32_t warp,
                                 const struct vgx_sim_site *site, uint32_t epoch) {
  q->number = vgx_sim_race_site_number(site);
  q->shift = 31 - (uint32_t)__builtin_clz(site->nbytes);
  q->stores = site->kind == VGX_SIM_WRITE;
  q->first = (vgx_sim_note)r->first_of_launch << VGX_SIM_NOTE_EPOCH;
  q->own = r->alone ? (vgx_sim_note)r->first << VGX_SIM_NOTE_EPOCH : 0;
  q->note = (vgx_sim_note)epoch << VGX_SIM_NOTE_EPOCH | (vgx_sim_note)q->number << VGX_SIM_NOTE_SITE |
            (vgx_sim_note)warp << VGX_SIM_NOTE_WARP | VGX_SIM_ALL_BYTES;
  return q->number != 0;
}

/* Note a row of whole segments, or of a half. False: it is none, or more is to be looked at. */
static inline __attribute__((always_inline)) bool note_row_quickly(const struct quick *q, uint64_t at, uint64_t nbytes,
                                                                   uint32_t lane) {
  uint64_t end = at + nbytes, odd = (at | nbytes) % SEGMENT_NBYTES;
  if (at < VGX_SIM_REACH_BEGIN || end > VGX_SIM_SLOTS_BEGIN)
    return false;
  struct vgx_sim_segment *segment = &vgx_sim_segments[(at - VGX_SIM_REACH_BEGIN) / SEGMENT_NBYTES];
  if (nbytes == LINE_NBYTES && odd == LINE_NBYTES)
    return note_half_quickly(segment, vgx_sim_with_lane(q->note, lane), q->first, q->stores, at);
  if (odd)
    return false;
  vgx_sim_fetch_ahead(q->number, at, lane);
  for (; at < end; at += SEGMENT_NBYTES, lane += SEGMENT_NBYTES >> q->shift, segment++)
    if (!note_quickly(q, segment, at, vgx_sim_with_lane(q->note, lane)))
      return false;
  return true;
}

/* Whether another function has to look. */
static inline bool is_special(const struct vgx_sim_races *r, uint32_t warp, const struct vgx_sim_site *site) {
  return warp >= r->warp_count || !vgx_sim_spans || (site->kind == VGX_SIM_WRITE && r->fenced >> warp & 1);
}

bool vgx_sim_race_rows_in_global(struct vgx_sim_races *r, uint32_t warp, const struct vgx_sim_site *site,
                                 uint64_t base) {
  struct quick q;
  uint64_t at = base + (uint64_t)(int64_t)site->rows[0].offset;
  if (vgx_sim_race_is_row_noted(r, vgx_sim_race_note_of(r, warp), site, base))
    return true;
  uint32_t epoch = is_special(r, warp, site) ? 0 : vgx_sim_race_epoch(r, warp);
  if (!epoch || !begin_quickly(&q, r, warp, site, epoch))
    return false;
  if (site->pattern == VGX_SIM_PATTERN_STRIPES && vgx_sim_race_record_stripes(r->first_of_launch, q.note, site, base))
    return true;
  vgx_sim_race_take_turn(epoch);
  if (site->row_count != 1) {
    for (uint32_t i = 0; i < site->row_count; i++)
      if (!note_row_quickly(&q, base + (uint64_t)(int64_t)site->rows[i].offset, site->rows[i].nbytes,
                            site->rows[i].lane))
        return false;
    return true;
  }
  if (are_noted(site, at))
    return true;
  if (!note_row_quickly(&q, at, site->rows[0].nbytes, site->rows[0].lane))
    return false;
  remember(site, at);
  return true;
}

bool vgx_sim_race_lanes_in_global(struct vgx_sim_races *r, uint32_t warp, const struct vgx_sim_site *site,
                                  const uint64_t *addresses, uint32_t starts) {
  struct quick q;
  uint32_t epoch = is_special(r, warp, site) ? 0 : vgx_sim_race_epoch(r, warp);
  uint64_t last = 0;
  if (!epoch || !begin_quickly(&q, r, warp, site, epoch))
    return false;
  vgx_sim_race_take_turn(epoch);
  for (uint32_t left = starts; left; left &= left - 1) {
    uint32_t rest = left & (left - 1), lane = (uint32_t)__builtin_ctz(left);
    uint64_t at = addresses[lane], nbytes = site->nbytes * ((rest ? (uint32_t)__builtin_ctz(rest) : 32ull) - lane);
    if ((q.stores && at < last) || !note_row_quickly(&q, at, nbytes, lane))
      return false; /* lanes may store to one place */
    last = at + nbytes;
  }
  return true;
}

bool vgx_sim_race_some_in_global(struct vgx_sim_races *r, uint32_t warp, const struct vgx_sim_site *site,
                                 const uint64_t *addresses, uint32_t mask) {
  struct quick q;
  uint32_t epoch = is_special(r, warp, site) ? 0 : vgx_sim_race_epoch(r, warp), count = 0;
  uint64_t last = 0;
  if (!epoch || !begin_quickly(&q, r, warp, site, epoch))
    return false;
  vgx_sim_race_take_turn(epoch);
  for (uint32_t lane = 0; lane < 32; lane += count ? count : 1) {
    uint64_t at = addresses[lane];
    for (count = 0; lane + count < 32 && mask >> (lane + count) & 1; count++)
      if (addresses[lane + count] != at + (uint64_t)site->nbytes * count)
        break;
    if (count && ((q.stores && at < last) || !note_row_quickly(&q, at, (uint64_t)site->nbytes * count, lane)))
      return false;
    last = count ? at + (uint64_t)site->nbytes * count : last;
  }
  return true;
}
