#include "vgs_progress.h"
#include <stdlib.h>

enum { LEAF_SIZE = 1024, LEAVES = 4096, RING_SHIFT = 56, MIXED_SHIFT = 55 }; /* ids below 4 Mi, as vgs_handle gives */
#define POSITION_MASK ((UINT64_C(1) << MIXED_SHIFT) - 1)

struct leaf {
  uint64_t last[LEAF_SIZE], settled[LEAF_SIZE]; /* atomic; ring << 56 | mixed << 55 | position */
};

static struct leaf *leaves[2][LEAVES]; /* atomic */

static struct leaf **leaf_of(uint16_t kind, uint32_t id) {
  return &leaves[kind == VGW_KIND_EVENT][id / LEAF_SIZE % LEAVES];
}

uint64_t vgs_touch_entry(uint16_t kind, uint32_t id) {
  struct leaf *leaf = __atomic_load_n(leaf_of(kind, id), __ATOMIC_ACQUIRE);
  return leaf ? __atomic_load_n(&leaf->last[id % LEAF_SIZE], __ATOMIC_ACQUIRE) : 0;
}

struct vgs_touch vgs_touch_of(uint64_t entry) {
  return (struct vgs_touch){
      .ring = (unsigned)(entry >> RING_SHIFT), .mixed = entry >> MIXED_SHIFT & 1, .position = entry & POSITION_MASK};
}

CUresult vgs_touch_set(uint16_t kind, uint32_t id, uint64_t before, struct vgs_touch touch) {
  struct leaf **place = leaf_of(kind, id), *leaf = __atomic_load_n(place, __ATOMIC_ACQUIRE);
  if (!leaf) {
    struct leaf *fresh = calloc(1, sizeof *fresh);
    if (!fresh)
      return CUDA_ERROR_OUT_OF_MEMORY;
    if (__atomic_compare_exchange_n(place, &leaf, fresh, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
      leaf = fresh;
    else
      free(fresh);
  }
  uint64_t entry = (uint64_t)touch.ring << RING_SHIFT | touch.position, *last = &leaf->last[id % LEAF_SIZE];
  if (before == VGS_TOUCH_ALONE)
    __atomic_store_n(last, entry, __ATOMIC_RELEASE);
  else if (!__atomic_compare_exchange_n(last, &before, entry, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    __atomic_store_n(last, entry | UINT64_C(1) << MIXED_SHIFT, __ATOMIC_RELEASE);
  return CUDA_SUCCESS;
}

void vgs_touch_mix(uint16_t kind, uint32_t id) {
  struct leaf *leaf = __atomic_load_n(leaf_of(kind, id), __ATOMIC_ACQUIRE);
  if (leaf) /* without a table no progress was recorded */
    __atomic_fetch_or(&leaf->last[id % LEAF_SIZE], UINT64_C(1) << MIXED_SHIFT, __ATOMIC_ACQ_REL);
}

void vgs_touch_set_done(uint32_t stream, uint64_t entry) {
  struct leaf *leaf = __atomic_load_n(leaf_of(VGW_KIND_STREAM, stream), __ATOMIC_ACQUIRE);
  if (leaf && !vgs_touch_of(entry).mixed)
    __atomic_store_n(&leaf->settled[stream % LEAF_SIZE], entry, __ATOMIC_RELEASE);
}

bool vgs_touch_is_done(uint32_t stream, uint64_t entry) {
  struct leaf *leaf = __atomic_load_n(leaf_of(VGW_KIND_STREAM, stream), __ATOMIC_ACQUIRE);
  uint64_t settled = leaf ? __atomic_load_n(&leaf->settled[stream % LEAF_SIZE], __ATOMIC_ACQUIRE) : 0;
  struct vgs_touch done = vgs_touch_of(settled), wanted = vgs_touch_of(entry);
  /* Positions of different rings cannot be compared. */
  return settled && entry && !wanted.mixed && done.ring == wanted.ring && done.position >= wanted.position;
}

void vgs_touch_clear(void) {
  for (int kind = 0; kind < 2; kind++)
    for (int i = 0; i < LEAVES; i++) {
      struct leaf *leaf = __atomic_load_n(&leaves[kind][i], __ATOMIC_ACQUIRE);
      for (int j = 0; leaf && j < LEAF_SIZE; j++) {
        __atomic_store_n(&leaf->last[j], 0, __ATOMIC_RELAXED);
        __atomic_store_n(&leaf->settled[j], 0, __ATOMIC_RELAXED);
      }
    }
}

void vgs_touch_fini(void) {
  for (int kind = 0; kind < 2; kind++)
    for (int i = 0; i < LEAVES; i++) {
      free(leaves[kind][i]);
      leaves[kind][i] = NULL;
    }
}

/* --- what may still be running --- */

#define STREAM_BITS 22 /* ids are below 4 Mi */

/* The state of one ring. Its thread writes it; any thread writes `done`, and an out-of-date value is harmless: it only
 * means that less is known to be done. */
static struct {
  _Alignas(64) uint64_t noted; /* atomic; calls that left work */
  uint64_t run;  /* atomic; number of the first of the latest calls that were all in one stream << 22 | stream */
  uint64_t done; /* atomic */
  uint64_t position,
      done_position; /* atomic; position of the last recorded call, and of the last one known to be done */
  uint32_t context;
} counts[VGW_RINGS_MAX];

static unsigned used;         /* atomic; rings below it may have work */
static uint32_t only_context; /* atomic */
static bool blind;            /* atomic */

#define LOAD(place) __atomic_load_n(&(place), __ATOMIC_ACQUIRE)
#define STORE(place, value) __atomic_store_n(&(place), value, __ATOMIC_RELEASE)

void vgs_progress_start(void) {
  for (unsigned i = 0; i < VGW_RINGS_MAX; i++) {
    STORE(counts[i].noted, 0);
    STORE(counts[i].run, 0);
    STORE(counts[i].done, 0);
    STORE(counts[i].position, 0);
    STORE(counts[i].done_position, 0);
    counts[i].context = 0;
  }
  STORE(used, 0);
  STORE(only_context, 0);
  STORE(blind, false);
}

void vgs_progress_set_unknown(void) { STORE(blind, true); }

bool vgs_progress_is_unknown(void) { return LOAD(blind); }

static void meet_context(unsigned ring, uint32_t context) {
  uint32_t none = 0;
  counts[ring].context = context;
  if (!__atomic_compare_exchange_n(&only_context, &none, context, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) &&
      none != context)
    STORE(blind, true);
}

void vgs_progress_add(unsigned ring, uint32_t context, uint32_t stream, uint64_t position) {
  if (!context)
    return; /* no work without a context */
  if (ring >= LOAD(used)) {
    unsigned before = LOAD(used);
    while (ring >= before &&
           !__atomic_compare_exchange_n(&used, &before, ring + 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
      continue;
  }
  uint64_t noted = counts[ring].noted + 1, run = counts[ring].run;
  if (counts[ring].context != context)
    meet_context(ring, context);
  if (noted == 1 || (run & ((1u << STREAM_BITS) - 1)) != stream)
    STORE(counts[ring].run, noted << STREAM_BITS | stream);
  STORE(counts[ring].position, position);
  STORE(counts[ring].noted, noted);
}

enum vgs_progress vgs_progress_query(uint32_t context, struct vgs_progress_marks *marks, uint32_t *stream) {
  enum vgs_progress found = VGS_PROGRESS_IDLE;
  marks->count = LOAD(used);
  for (unsigned i = 0; i < marks->count; i++) {
    marks->position[i] = LOAD(counts[i].position); /* read before `noted`, so that the position is no later call's */
    uint64_t done = LOAD(counts[i].done), noted = marks->noted[i] = LOAD(counts[i].noted);
    if (noted <= done)
      continue;
    uint64_t run = LOAD(counts[i].run);
    uint32_t latest = run & ((1u << STREAM_BITS) - 1);
    if (run >> STREAM_BITS > done + 1 || (found == VGS_PROGRESS_ONE && *stream != latest))
      found = VGS_PROGRESS_MANY;
    else if (found == VGS_PROGRESS_IDLE)
      found = VGS_PROGRESS_ONE;
    *stream = latest;
  }
  return LOAD(blind) || (LOAD(only_context) && LOAD(only_context) != context) ? VGS_PROGRESS_MANY : found;
}

void vgs_progress_set_done(const struct vgs_progress_marks *marks) {
  for (unsigned i = 0; i < marks->count && !LOAD(blind); i++) {
    STORE(counts[i].done, marks->noted[i]);
    STORE(counts[i].done_position, marks->position[i]);
  }
}

bool vgs_progress_is_done(unsigned ring, uint64_t position) {
  return ring < LOAD(used) && position <= LOAD(counts[ring].done_position) && !LOAD(blind);
}
