/* Racecheck outside of shared memory. A line of 32 bytes has one note for each of: the last store; the last load; the
 * last load by another warp than that. Each says which words of the line it is about, so that warps which access rows
 * touch 32 bytes for each. Where one note does not do, a line gets a block with notes for each word. A new launch
 * starts with none: nothing of an earlier one is a race.
 *
 * What is kept of a word is less than what happened to it: of the loads by more than two warps, and of accesses to
 * single bytes of one word, the last ones count. */
#define _GNU_SOURCE
#include "vgx_sim_race_global.h"

#include <stddef.h>
#include <sys/mman.h>

#include "vgx_sim_reach.h"

#define LINE_NBYTES 32u
#define WORDS 8u
#define BLOCKS (1ull << 28)

enum kind { STORE, LOAD, OTHER_LOAD, KINDS };

struct line {
  vgx_sim_note notes[KINDS]; /* of a divided line: its last epoch's, its block's number */
  uint8_t words[KINDS];
  uint8_t divided;
};
_Static_assert(sizeof(struct line) == 32, "as much as the line itself");

struct block {
  vgx_sim_note notes[WORDS][KINDS];
};

static struct line *lines; /* by address */
static struct block *blocks;
static uint64_t used_blocks = 1, free_block; /* free ones are a list: the number of the next in the first note */

static void *reserve(uint64_t nbytes) {
  void *got = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (got == MAP_FAILED)
    return NULL;
  madvise(got, nbytes, MADV_HUGEPAGE);
  return got;
}

#define LINES_NBYTES ((VGX_SIM_SLOTS_BEGIN - VGX_SIM_REACH_BEGIN) / LINE_NBYTES * sizeof(struct line))

static bool are_reserved(void) {
  if (!lines)
    lines = reserve(LINES_NBYTES);
  if (!blocks)
    blocks = reserve(BLOCKS * sizeof *blocks);
  return lines && blocks;
}

void vgx_sim_race_clear_global(void) {
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

/* The note of one word that a line's note is about. */
static vgx_sim_note of_word(vgx_sim_note n, uint32_t word) {
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

void vgx_sim_race_in_global(struct vgx_sim_race_access *a, uint64_t address, uint64_t nbytes, uint32_t lane,
                            uint32_t log2_nbytes) {
  uint64_t end = address + nbytes;
  static bool told;
  if (address < VGX_SIM_REACH_BEGIN || end > VGX_SIM_SLOTS_BEGIN)
    return;
  if (!are_reserved()) {
    if (!told)
      a->watch->log("racecheck: the address space is too small: races in global memory are not looked for");
    told = true;
    return;
  }
  vgx_sim_note first = (vgx_sim_note)a->races->first_of_launch << VGX_SIM_NOTE_EPOCH;
  uint64_t at = address;
  if (((address | nbytes) & (LINE_NBYTES - 1)) == 0 && a->site->nbytes)
    for (uint32_t step = LINE_NBYTES >> log2_nbytes; at < end; at += LINE_NBYTES, lane += step) {
      struct line *line = &lines[(at - VGX_SIM_REACH_BEGIN) / LINE_NBYTES];
      bool fresh = line->notes[STORE] < first && line->notes[LOAD] < first;
      bool own =
          line->notes[STORE] < first && line->words[OTHER_LOAD] == 0 && vgx_sim_epoch_of(line->notes[LOAD]) == a->epoch;
      if (line->divided || !(fresh || (own && a->stores)))
        break;
      if (fresh)
        *line = (struct line){0};
      line->notes[a->stores ? STORE : LOAD] = vgx_sim_with_lane(a->note, lane);
      line->words[a->stores ? STORE : LOAD] = (1u << WORDS) - 1;
    }
  lane -= (uint32_t)((at - address) >> log2_nbytes); /* as the row begins, below */
  while (at < end) {
    uint64_t from = at & ~(uint64_t)(LINE_NBYTES - 1), next = from + LINE_NBYTES < end ? from + LINE_NBYTES : end;
    struct line *line = &lines[(from - VGX_SIM_REACH_BEGIN) / LINE_NBYTES];
    struct part part = {from, (uint32_t)(at - from) / 4, (uint32_t)(next - from + 3) / 4, 0, log2_nbytes};
    bool whole = ((at | next) & 3) == 0 && a->site->nbytes;
    /* Relative to the line: lanes begin at multiples of their bytes. */
    part.first_lane = lane + (uint32_t)((at - address) >> log2_nbytes) - (uint32_t)((at - from) >> log2_nbytes);
    if (is_past(a, line->notes[STORE]) && (line->divided || is_past(a, line->notes[LOAD])))
      forget(line);
    if ((line->divided || !whole || !note_line(a, line, &part)) && (line->divided || divide(a, line)))
      note_words(a, line, &part, (vgx_sim_note)(15u << (at & 3) & 15) << VGX_SIM_NOTE_BYTES,
                 (vgx_sim_note)(15u >> (3 & (4 - (next & 3)))) << VGX_SIM_NOTE_BYTES);
    at = next;
  }
}
