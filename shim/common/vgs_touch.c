#include "vgs_touch.h"
#include <stdlib.h>

enum { LEAF_SIZE = 1024, LEAVES = 4096, RING_SHIFT = 56 }; /* ids below 4 Mi, as vgs_handle gives them */

static uint64_t *leaves[2][LEAVES]; /* atomic; an entry is ring << 56 | position, 0 for none */

static uint64_t **leaf_of(uint16_t kind, uint32_t id) {
  return &leaves[kind == VGW_KIND_EVENT][id / LEAF_SIZE % LEAVES];
}

bool vgs_touch_find(uint16_t kind, uint32_t id, struct vgs_touch *last) {
  uint64_t *leaf = __atomic_load_n(leaf_of(kind, id), __ATOMIC_ACQUIRE);
  uint64_t entry = leaf ? __atomic_load_n(&leaf[id % LEAF_SIZE], __ATOMIC_ACQUIRE) : 0;
  last->ring = (unsigned)(entry >> RING_SHIFT);
  last->position = entry & ((UINT64_C(1) << RING_SHIFT) - 1);
  return entry;
}

CUresult vgs_touch_set(uint16_t kind, uint32_t id, struct vgs_touch touch) {
  uint64_t **place = leaf_of(kind, id), *leaf = __atomic_load_n(place, __ATOMIC_ACQUIRE);
  if (!leaf) {
    uint64_t *fresh = calloc(LEAF_SIZE, sizeof *fresh);
    if (!fresh)
      return CUDA_ERROR_OUT_OF_MEMORY;
    if (__atomic_compare_exchange_n(place, &leaf, fresh, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
      leaf = fresh;
    else
      free(fresh);
  }
  __atomic_store_n(&leaf[id % LEAF_SIZE], (uint64_t)touch.ring << RING_SHIFT | touch.position, __ATOMIC_RELEASE);
  return CUDA_SUCCESS;
}

void vgs_touch_fini(void) {
  for (int kind = 0; kind < 2; kind++)
    for (int i = 0; i < LEAVES; i++) {
      free(leaves[kind][i]);
      leaves[kind][i] = NULL;
    }
}
