#define _GNU_SOURCE
#include "vgs_area.h"
#include "vgs_api.h"
#include "vgs_enter.h"
#include "vgs_host_map.h"
#include "vgs_region.h"
#include "vgs_ring_set.h"
#include "vgs_session.h"
#include <string.h>
#include <sys/mman.h>

enum { SMALL_MAX = 64, STAGING_MAX = 8 };

static struct vgs_area small[SMALL_MAX], staging[STAGING_MAX];
static const struct {
  struct vgs_area *areas;
  unsigned count;
  uint64_t nbytes;
} pools[] = {
    [VGS_AREA_SMALL] = {small, SMALL_MAX, VGS_LANDING_OFFSET + VGS_LANDING_NBYTES},
    [VGS_AREA_STAGING] = {staging, STAGING_MAX, VGS_LANDING_OFFSET + (uint64_t)VGS_SLOTS * VGS_SLOT_NBYTES},
};

static bool seize(struct vgs_area *area) {
  bool busy = __atomic_load_n(&area->busy, __ATOMIC_RELAXED);
  return !busy && __atomic_compare_exchange_n(&area->busy, &busy, true, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

/* Unmap this process's side only: the worker's side ends with its context or session. */
static void forget(struct vgs_area *area, uint64_t nbytes) {
  if (area->memory) {
    munmap(area->memory, nbytes);
    vgs_region_free_pinned((uintptr_t)area->memory);
  }
  area->memory = NULL;
  __atomic_store_n(&area->doomed, false, __ATOMIC_SEQ_CST);
}

static bool make(struct vgs_area *area, uint64_t nbytes) {
  void *memory;
  if (!vgs_session_has_pinned_fd() && !vgs_region_can_spare(nbytes))
    return false; /* the region also holds the program's own pinned memory */
  if (vgs_host_map(nbytes, &memory))
    return false;
  area->memory = memory;
  area->context_id = vgs_context_entered->wire_id;
  area->epoch = vgs_session_epoch();
  memset(area->values, 0, sizeof area->values);
  for (unsigned slot = 0; slot < VGS_SLOTS; slot++)
    area->by[slot] = (uint8_t)slot;
  return true;
}

struct vgs_area *vgs_area_acquire(enum vgs_area_kind kind) {
  if (!vgs_context_entered || !vgs_ring_active() || (!vgs_session_has_pinned_fd() && !vgs_region_mapped()))
    return NULL;
  for (unsigned i = 0; i < pools[kind].count; i++) {
    struct vgs_area *area = &pools[kind].areas[i];
    if (!seize(area))
      continue;
    if (area->memory && area->epoch != vgs_session_epoch())
      forget(area, pools[kind].nbytes);
    if (area->memory ? area->context_id == vgs_context_entered->wire_id : make(area, pools[kind].nbytes))
      return area;
    bool refused = !area->memory;
    vgs_area_release(area);
    if (refused)
      return NULL;
  }
  return NULL;
}

static uint64_t nbytes_of(const struct vgs_area *area) {
  return pools[area >= small && area < small + SMALL_MAX ? VGS_AREA_SMALL : VGS_AREA_STAGING].nbytes;
}

void vgs_area_release(struct vgs_area *area) {
  for (;;) {
    __atomic_store_n(&area->busy, false, __ATOMIC_SEQ_CST);
    if (!__atomic_load_n(&area->doomed, __ATOMIC_SEQ_CST) || !seize(area))
      return;
    forget(area, nbytes_of(area));
  }
}

bool vgs_area_acquire_again(struct vgs_area *area) {
  if (!vgs_context_entered || !seize(area))
    return false;
  if (area->memory && area->epoch == vgs_session_epoch() && area->context_id == vgs_context_entered->wire_id)
    return true;
  vgs_area_release(area);
  return false;
}

static void drop(uint32_t context_id, bool all) {
  for (unsigned kind = VGS_AREA_SMALL; kind <= VGS_AREA_STAGING; kind++)
    for (unsigned i = 0; i < pools[kind].count; i++) {
      struct vgs_area *area = &pools[kind].areas[i];
      if (!__atomic_load_n(&area->memory, __ATOMIC_RELAXED) || (!all && area->context_id != context_id))
        continue;
      __atomic_store_n(&area->doomed, true, __ATOMIC_SEQ_CST);
      if (!seize(area))
        continue; /* the thread that owns it will free it */
      if (!all && area->memory)
        vgs_send_vgpuHostUnmap((uintptr_t)area->memory);
      vgs_area_release(area);
    }
}

void vgs_area_destroy_context(uint32_t context_id) { drop(context_id, false); }
void vgs_area_destroy_all(void) { drop(0, true); }
