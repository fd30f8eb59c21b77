#include "vgs_touch.h"
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
  if (leaf) /* without one it was never settled either */
    __atomic_fetch_or(&leaf->last[id % LEAF_SIZE], UINT64_C(1) << MIXED_SHIFT, __ATOMIC_ACQ_REL);
}

void vgs_touch_settle(uint32_t stream, uint64_t entry) {
  struct leaf *leaf = __atomic_load_n(leaf_of(VGW_KIND_STREAM, stream), __ATOMIC_ACQUIRE);
  if (leaf && !vgs_touch_of(entry).mixed)
    __atomic_store_n(&leaf->settled[stream % LEAF_SIZE], entry, __ATOMIC_RELEASE);
}

bool vgs_touch_is_settled(uint32_t stream, uint64_t entry) {
  struct leaf *leaf = __atomic_load_n(leaf_of(VGW_KIND_STREAM, stream), __ATOMIC_ACQUIRE);
  uint64_t settled = leaf ? __atomic_load_n(&leaf->settled[stream % LEAF_SIZE], __ATOMIC_ACQUIRE) : 0;
  struct vgs_touch done = vgs_touch_of(settled), wanted = vgs_touch_of(entry);
  /* Positions compare within a ring alone. */
  return settled && entry && !wanted.mixed && done.ring == wanted.ring && done.position >= wanted.position;
}

void vgs_touch_forget(void) {
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
