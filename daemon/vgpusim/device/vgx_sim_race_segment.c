/* Racecheck outside of shared memory. Notes are kept for as much memory as warps access at once, so that a warp which
 * accesses a row touches few bytes here: each of the following has one note for the last store, one for the last load,
 * and one for the last load by another warp than that.
 * - A segment, 64 bytes, while each access is of all of it.
 * - Its halves, while each access is of one of them, and those of one are of one kind (one note each).
 * - Else its lines, of 32 bytes each. A line's notes also say which words they are about.
 * - Where one note does not do, a line's words: it gets a block.
 * While accesses follow a simple pattern, vgx_sim_race_span.c has one note for several segments.
 * A new launch starts with none: nothing of an earlier one is a race.
 *
 * What is kept of a word is less than what happened to it: of the loads by more than two warps, and of accesses to
 * single bytes of one word, the last ones count. */
#define _GNU_SOURCE
#include "vgx_sim_race_segment.h"

#include <stddef.h>
#include <sys/mman.h>

#include "vgx_sim_reach.h"

#define SEGMENT_NBYTES VGX_SIM_SEGMENT_NBYTES
#define LINE_NBYTES VGX_SIM_LINE_NBYTES
#define LINES (SEGMENT_NBYTES / LINE_NBYTES)
#define WORDS 8u
#define ALL_WORDS ((1u << WORDS) - 1)
#define BLOCKS (1ull << 28)

enum {
  STORE = VGX_SIM_STORED,
  LOAD = VGX_SIM_LOADED,
  OTHER_LOAD = VGX_SIM_LOADED_BY_OTHER,
  KINDS = VGX_SIM_SEGMENT_NOTES
};
enum { WHOLE = VGX_SIM_WHOLE, HALVES = VGX_SIM_HALVES, DIVIDED = VGX_SIM_DIVIDED };

struct line {
  vgx_sim_note notes[KINDS]; /* of a divided line: its last epoch's, its block's number */
  uint8_t words[KINDS];
  uint8_t divided;
};
_Static_assert(sizeof(struct line) == 32, "as much as the line itself");

struct block {
  vgx_sim_note notes[WORDS][KINDS];
};

struct vgx_sim_segment *vgx_sim_segments;
uint64_t vgx_sim_fetched[64];
static struct line *lines; /* by address */
static struct block *blocks;
static uint64_t used_blocks = 1, free_block; /* free ones are a list: the number of the next in the first note */

void *vgx_sim_race_reserve(uint64_t nbytes) {
  void *got = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (got == MAP_FAILED)
    return NULL;
  madvise(got, nbytes, MADV_HUGEPAGE);
  return got;
}

#define SEGMENTS_NBYTES ((VGX_SIM_SLOTS_BEGIN - VGX_SIM_REACH_BEGIN) / SEGMENT_NBYTES * sizeof(struct vgx_sim_segment))
#define LINES_NBYTES ((VGX_SIM_SLOTS_BEGIN - VGX_SIM_REACH_BEGIN) / LINE_NBYTES * sizeof(struct line))

bool vgx_sim_race_reserve_segments(void) {
  if (!vgx_sim_segments)
    vgx_sim_segments = vgx_sim_race_reserve(SEGMENTS_NBYTES);
  if (!lines)
    lines = vgx_sim_race_reserve(LINES_NBYTES);
  if (!blocks)
    blocks = vgx_sim_race_reserve(BLOCKS * sizeof *blocks);
  return vgx_sim_segments && lines && blocks;
}

void vgx_sim_race_clear_segments(void) {
  if (vgx_sim_segments)
    madvise(vgx_sim_segments, SEGMENTS_NBYTES, MADV_DONTNEED);
  if (lines)
    madvise(lines, LINES_NBYTES, MADV_DONTNEED);
  if (blocks)
    madvise(blocks, BLOCKS * sizeof *blocks, MADV_DONTNEED);
  used_blocks = 1;
  free_block = 0;
}

/* A row within a line. The lane of word w is first_lane + (4 * w >> log2_nbytes). */
struct part {
  uint64_t address; /* of the line */
  uint32_t begin, end;
  uint32_t first_lane, log2_nbytes;
};

static uint32_t lane_of(const struct part *p, uint32_t word) {
  return (p->first_lane + (4 * word >> p->log2_nbytes)) & 31;
}

static bool is_past(const struct vgx_sim_race_access *a, vgx_sim_note n) {
  return vgx_sim_epoch_of(n) < a->races->first_of_launch;
}

/* The note of one word, from the note of the line to which the word belongs. */
static vgx_sim_note of_word(vgx_sim_note n, uint32_t word) {
  if (!n)
    return 0;
  uint32_t nbytes = vgx_sim_race_site_nbytes(n), shift = 31 - (uint32_t)__builtin_clz(nbytes ? nbytes : 4);
  return vgx_sim_with_lane(n, vgx_sim_lane_of(n) + (4 * word >> shift));
}

/* Give a line a block; false: there is none left. */
static bool divide(const struct vgx_sim_race_access *a, struct line *line) {
  uint64_t number = free_block;
  if (number)
    free_block = (uint64_t)blocks[number].notes[0][0];
  else if (used_blocks < BLOCKS)
    number = used_blocks++;
  else
    return false;
  for (uint32_t word = 0; word < WORDS; word++)
    for (uint32_t kind = 0; kind < KINDS; kind++)
      blocks[number].notes[word][kind] = line->words[kind] >> word & 1 ? of_word(line->notes[kind], word) : 0;
  *line = (struct line){.notes = {a->note, (vgx_sim_note)number}, .divided = 1};
  return true;
}

static void forget(struct line *line) {
  if (line->divided) {
    uint64_t number = (uint64_t)line->notes[1];
    blocks[number].notes[0][0] = (vgx_sim_note)free_block;
    free_block = number;
  }
  *line = (struct line){0};
}

static void look_at(struct vgx_sim_race_access *a, const struct part *p, vgx_sim_note before, uint32_t words,
                    bool stored) {
  if (vgx_sim_epoch_of(before) == a->epoch || vgx_sim_race_is_ordered(a, before))
    return; /* for all words */
  for (; words; words &= words - 1) {
    uint32_t word = (uint32_t)__builtin_ctz(words);
    vgx_sim_race_meets(a, of_word(before, word), stored, p->address + 4 * word, lane_of(p, word));
  }
}

/* A row of whole words in a line that is not divided. False: the line has to be divided. */
static bool note_line(struct vgx_sim_race_access *a, struct line *line, const struct part *p) {
  uint32_t words = (1u << p->end) - (1u << p->begin);
  vgx_sim_note note = vgx_sim_with_lane(a->note, p->first_lane);
  uint32_t stored = line->words[STORE], loaded = line->words[LOAD], other = line->words[OTHER_LOAD];
  if (a->stores) {
    if (stored & ~words && line->notes[STORE] != note)
      return false;
  } else if (line->notes[LOAD] == note || loaded == 0) {
    ; /* more words of one note */
  } else if (vgx_sim_race_is_same_warp(a, line->notes[LOAD])) {
    if (loaded & ~words)
      return false;
  } else if (other & ~loaded) {
    return false;
  }
  if (stored & words)
    look_at(a, p, line->notes[STORE], stored & words, true);
  if (a->stores) {
    if (loaded & words)
      look_at(a, p, line->notes[LOAD], loaded & words, false);
    if (other & words)
      look_at(a, p, line->notes[OTHER_LOAD], other & words, false);
    line->words[STORE] = (uint8_t)(line->notes[STORE] == note ? stored | words : words);
    line->notes[STORE] = note;
    return true;
  }
  if (line->notes[LOAD] == note) {
    line->words[LOAD] = (uint8_t)(loaded | words);
    return true;
  }
  if (loaded && !vgx_sim_race_is_same_warp(a, line->notes[LOAD])) {
    line->notes[OTHER_LOAD] = line->notes[LOAD];
    line->words[OTHER_LOAD] = (uint8_t)loaded;
  }
  line->notes[LOAD] = note;
  line->words[LOAD] = (uint8_t)words;
  return true;
}

/* The same for each word of a divided line. `bytes`: of the first and of the last word, those of the row. */
static void note_words(struct vgx_sim_race_access *a, struct line *line, const struct part *p, vgx_sim_note first_bytes,
                       vgx_sim_note last_bytes) {
  vgx_sim_note(*words)[KINDS] = blocks[line->notes[1]].notes;
  line->notes[0] = a->note;
  for (uint32_t word = p->begin; word < p->end; word++) {
    vgx_sim_note bytes = (word == p->begin ? first_bytes : -1) & (word == p->end - 1 ? last_bytes : -1);
    vgx_sim_note note = vgx_sim_with_lane(a->note, lane_of(p, word)) & (bytes | ~VGX_SIM_ALL_BYTES);
    vgx_sim_note *notes = words[word], same = VGX_SIM_ALL_BYTES & note;
    uint64_t address = p->address + 4 * word;
    if (notes[STORE] & same && vgx_sim_epoch_of(notes[STORE]) != a->epoch)
      vgx_sim_race_meets(a, notes[STORE], true, address, lane_of(p, word));
    if (a->stores) {
      for (uint32_t kind = LOAD; kind < KINDS; kind++)
        if (notes[kind] & same && vgx_sim_epoch_of(notes[kind]) != a->epoch)
          vgx_sim_race_meets(a, notes[kind], false, address, lane_of(p, word));
      notes[STORE] = note;
    } else {
      if (notes[LOAD] && vgx_sim_epoch_of(notes[LOAD]) != a->epoch && !vgx_sim_race_is_same_warp(a, notes[LOAD]))
        notes[OTHER_LOAD] = notes[LOAD];
      notes[LOAD] = note;
    }
  }
}

/* Whether an access of the same bytes cannot race with the noted one. */
static bool is_harmless(const struct vgx_sim_race_access *a, vgx_sim_note before) {
  return before == 0 || vgx_sim_epoch_of(before) == a->epoch || (before & a->note & VGX_SIM_NOTE_ORDERED) ||
         vgx_sim_race_is_ordered(a, before);
}

/* Note an access of all of a segment or line, whose notes are about all of it, too. False: it may be a race. */
static inline bool note_whole(const struct vgx_sim_race_access *a, vgx_sim_note notes[KINDS], vgx_sim_note note) {
  vgx_sim_note loaded = notes[LOAD];
  if (!is_harmless(a, notes[STORE]))
    return false;
  if (a->stores) {
    if (!is_harmless(a, loaded) || !is_harmless(a, notes[OTHER_LOAD]))
      return false;
    notes[STORE] = note;
    return true;
  }
  if (loaded && (vgx_sim_warp_of(loaded) != a->warp || !vgx_sim_race_is_same_warp(a, loaded)))
    notes[OTHER_LOAD] = loaded;
  notes[LOAD] = note;
  return true;
}

/* Whether each note of a line is about all of it. */
static bool is_whole(const struct line *line) {
  for (uint32_t kind = 0; kind < KINDS; kind++)
    if (line->words[kind] != 0 && line->words[kind] != ALL_WORDS)
      return false;
  return !line->divided;
}

static void note_in_line(struct vgx_sim_race_access *a, struct line *line, uint64_t at, uint64_t end, uint32_t lane,
                         uint32_t log2_nbytes) {
  uint64_t from = at & ~(uint64_t)(LINE_NBYTES - 1);
  struct part part = {from, (uint32_t)(at - from) / 4, (uint32_t)(end - from + 3) / 4, 0, log2_nbytes};
  bool words = ((at | end) & 3) == 0 && a->site->nbytes;
  part.first_lane = lane - (uint32_t)((at - from) >> log2_nbytes);
  if (is_past(a, line->notes[STORE]) && (line->divided || is_past(a, line->notes[LOAD])))
    forget(line);
  if ((line->divided || !words || !note_line(a, line, &part)) && (line->divided || divide(a, line)))
    note_words(a, line, &part, (vgx_sim_note)(15u << (at & 3) & 15) << VGX_SIM_NOTE_BYTES,
               (vgx_sim_note)(15u >> (3 & (4 - (end & 3)))) << VGX_SIM_NOTE_BYTES);
}

/* A row within a divided segment. */
static void note_in_lines(struct vgx_sim_race_access *a, uint64_t at, uint64_t end, uint32_t lane,
                          uint32_t log2_nbytes) {
  vgx_sim_note first = (vgx_sim_note)a->races->first_of_launch << VGX_SIM_NOTE_EPOCH;
  for (uint64_t next; at < end; lane += (uint32_t)((next - at) >> log2_nbytes), at = next) {
    struct line *line = &lines[(at - VGX_SIM_REACH_BEGIN) / LINE_NBYTES];
    next = (at & ~(uint64_t)(LINE_NBYTES - 1)) + LINE_NBYTES;
    next = next < end ? next : end;
    if (next - at == LINE_NBYTES && a->site->nbytes && !line->divided) {
      vgx_sim_note note = vgx_sim_with_lane(a->note, lane);
      if (line->notes[STORE] < first && line->notes[LOAD] < first)
        *line = (struct line){0};
      if (is_whole(line) && note_whole(a, line->notes, note)) {
        for (uint32_t kind = 0; kind < KINDS; kind++)
          line->words[kind] = line->notes[kind] ? ALL_WORDS : 0;
        continue;
      }
    }
    note_in_line(a, line, at, next, lane, log2_nbytes);
  }
}

static void divide_segment(struct vgx_sim_segment *segment, uint64_t address) {
  struct line *parts = &lines[(address - VGX_SIM_REACH_BEGIN) / LINE_NBYTES];
  for (uint32_t i = 0; i < LINES; i++) {
    forget(&parts[i]); /* an earlier launch's notes */
    for (uint32_t kind = 0; kind < KINDS; kind++) {
      bool halves = segment->form == HALVES, own = kind == (segment->stored >> i & 1 ? STORE : LOAD);
      vgx_sim_note note = !halves ? of_word(segment->notes[kind], i * WORDS) : own ? segment->notes[i] : 0;
      parts[i].notes[kind] = note;
      parts[i].words[kind] = note ? ALL_WORDS : 0;
    }
  }
}

/* Note an access of a half. False: the segment has to be divided. */
static bool note_half(const struct vgx_sim_race_access *a, struct vgx_sim_segment *segment, uint32_t half,
                      vgx_sim_note note) {
  vgx_sim_note before = segment->notes[half];
  if (!is_past(a, before) && ((segment->stored >> half & 1) != a->stores ||
                              !(a->stores ? is_harmless(a, before) : vgx_sim_race_is_same_warp(a, before))))
    return false;
  segment->notes[half] = note;
  segment->stored = (segment->stored & ~(1u << half)) | (uint32_t)a->stores << half;
  return true;
}

void vgx_sim_race_in_segments(struct vgx_sim_race_access *a, uint64_t address, uint64_t nbytes, uint32_t lane,
                              uint32_t log2_nbytes) {
  uint64_t end = address + nbytes;
  vgx_sim_note first = (vgx_sim_note)a->races->first_of_launch << VGX_SIM_NOTE_EPOCH;
  for (uint64_t at = address, next; at < end; lane += (uint32_t)((next - at) >> log2_nbytes), at = next) {
    uint64_t from = at & ~(uint64_t)(SEGMENT_NBYTES - 1);
    struct vgx_sim_segment *segment = &vgx_sim_segments[(from - VGX_SIM_REACH_BEGIN) / SEGMENT_NBYTES];
    next = from + SEGMENT_NBYTES < end ? from + SEGMENT_NBYTES : end;
    bool fresh = segment->notes[STORE] < first && segment->notes[LOAD] < first;
    if (fresh)
      *segment = (struct vgx_sim_segment){0};
    if (next - at == SEGMENT_NBYTES && a->site->nbytes && segment->form == WHOLE &&
        note_whole(a, segment->notes, vgx_sim_with_lane(a->note, lane)))
      continue;
    if (next - at == LINE_NBYTES && at % LINE_NBYTES == 0 && a->site->nbytes && (fresh || segment->form == HALVES)) {
      segment->form = HALVES;
      if (note_half(a, segment, at % SEGMENT_NBYTES != 0, vgx_sim_with_lane(a->note, lane)))
        continue;
    }
    if (segment->form != DIVIDED && !fresh)
      divide_segment(segment, from);
    segment->notes[STORE] = a->note; /* as long as this is the launch's, the segment stays divided */
    segment->form = DIVIDED;
    note_in_lines(a, at, next, lane, log2_nbytes);
  }
}
