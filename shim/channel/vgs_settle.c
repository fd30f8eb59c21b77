#include "vgs_settle.h"

#define STREAM_BITS 22 /* ids are below 4 Mi */

/* Of one ring. Written by its thread, `done` by any: an older value only means less is known. */
static struct {
  _Alignas(64) uint64_t noted; /* atomic; calls that left work */
  uint64_t run;  /* atomic; number of the first of the latest calls that were all in one stream << 22 | stream */
  uint64_t done; /* atomic */
  uint64_t position, done_position; /* atomic; of the last call noted, and of the last one known to be done */
  uint32_t context;
} counts[VGW_RINGS_MAX];

static unsigned used;         /* atomic; rings below it may have work */
static uint32_t only_context; /* atomic */
static bool blind;            /* atomic */

#define LOAD(place) __atomic_load_n(&(place), __ATOMIC_ACQUIRE)
#define STORE(place, value) __atomic_store_n(&(place), value, __ATOMIC_RELEASE)

void vgs_settle_start(void) {
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

void vgs_settle_set_blind(void) { STORE(blind, true); }

bool vgs_settle_is_blind(void) { return LOAD(blind); }

static void meet_context(unsigned ring, uint32_t context) {
  uint32_t none = 0;
  counts[ring].context = context;
  if (!__atomic_compare_exchange_n(&only_context, &none, context, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) &&
      none != context)
    STORE(blind, true);
}

void vgs_settle_note(unsigned ring, uint32_t context, uint32_t stream, uint64_t position) {
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

enum vgs_settle vgs_settle_look(uint32_t context, struct vgs_settle_marks *marks, uint32_t *stream) {
  enum vgs_settle found = VGS_SETTLED;
  marks->count = LOAD(used);
  for (unsigned i = 0; i < marks->count; i++) {
    marks->position[i] = LOAD(counts[i].position); /* before `noted`, so that it is of no later call */
    uint64_t done = LOAD(counts[i].done), noted = marks->noted[i] = LOAD(counts[i].noted);
    if (noted <= done)
      continue;
    uint64_t run = LOAD(counts[i].run);
    uint32_t latest = run & ((1u << STREAM_BITS) - 1);
    if (run >> STREAM_BITS > done + 1 || (found == VGS_SETTLE_ONE && *stream != latest))
      found = VGS_SETTLE_MANY;
    else if (found == VGS_SETTLED)
      found = VGS_SETTLE_ONE;
    *stream = latest;
  }
  return LOAD(blind) || (LOAD(only_context) && LOAD(only_context) != context) ? VGS_SETTLE_MANY : found;
}

void vgs_settle_done(const struct vgs_settle_marks *marks) {
  for (unsigned i = 0; i < marks->count && !LOAD(blind); i++) {
    STORE(counts[i].done, marks->noted[i]);
    STORE(counts[i].done_position, marks->position[i]);
  }
}

bool vgs_settle_is_done(unsigned ring, uint64_t position) {
  return ring < LOAD(used) && position <= LOAD(counts[ring].done_position) && !LOAD(blind);
}
