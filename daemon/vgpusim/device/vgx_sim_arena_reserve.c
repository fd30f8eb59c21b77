/* Addresses without memory (cuMemAddressReserve), and memory without addresses (cuMemCreate), in a device's arena. */
#define _GNU_SOURCE
#include "vgx_sim_arena_reserve.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HINT_ALIGN_NBYTES (64ull << 20) /* an H200's driver (580.159.04) rounds hints up to it */

/* Reservations cost no device memory, so nothing else bounds how many there are, and each new one passes the others in
 * the search for its place. As many as there may be mappings of cuMemMap in all: memory can be in no more of them. */
#define RESERVATIONS_MAX 16384u

/* Move what has a place to the hint, if that is free. */
static void move_to_hint_locked(struct vgx_sim_arena *arena, struct vgx_sim_allocation *made, uint64_t alignment,
                                uint64_t hint, size_t *index) {
  if (hint < arena->base || hint >= arena->end)
    return;
  uint64_t start = vgx_sim_round_up(hint, alignment > HINT_ALIGN_NBYTES ? alignment : HINT_ALIGN_NBYTES);
  uint64_t span = made->pages_end - made->pages;
  size_t i = vgx_sim_arena_bound_locked(arena, start);
  uint64_t limit = i < arena->count ? arena->live[i].pages : arena->end;
  if (start > limit || limit - start < span)
    return;
  made->address = made->pages = start;
  made->pages_end = start + span;
  *index = i;
}

CUresult vgx_sim_arena_reserve(struct vgx_sim_arena *arena, uint64_t nbytes, enum vgx_sim_allocation_kind kind,
                               uint64_t alignment, uint64_t hint, uint64_t *address) {
  struct vgx_sim_allocation made = {.nbytes = nbytes, .kind = kind};
  uint64_t cost = kind == VGX_SIM_PHYSICAL ? nbytes : 0;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  size_t index;
  pthread_mutex_lock(&arena->lock);
  uint64_t room = arena->end - arena->base;
  bool counted = kind != VGX_SIM_RESERVED || arena->reserved < RESERVATIONS_MAX;
  bool taken = counted && nbytes <= room && alignment <= room && vgx_sim_arena_charge_locked(arena, cost);
  if (taken && !vgx_sim_arena_place_locked(arena, &made, alignment, &index)) {
    vgx_sim_arena_uncharge_locked(arena, cost);
  } else if (taken) {
    uint64_t rover = arena->rover;
    if (kind == VGX_SIM_RESERVED)
      move_to_hint_locked(arena, &made, alignment, hint, &index);
    vgx_sim_arena_insert_locked(arena, &made, index);
    if (kind == VGX_SIM_RESERVED) {
      arena->reserved++;
      arena->rover = rover; /* allocations go on where they were, as an H200's do */
    }
    *address = made.address;
    result = CUDA_SUCCESS;
  }
  pthread_mutex_unlock(&arena->lock);
  return result;
}

CUresult vgx_sim_arena_unreserve(struct vgx_sim_arena *arena, uint64_t address, enum vgx_sim_allocation_kind kind) {
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&arena->lock);
  size_t i = vgx_sim_arena_bound_locked(arena, address);
  struct vgx_sim_allocation *entry = i < arena->count ? &arena->live[i] : NULL;
  if (entry && entry->address == address && entry->kind == kind && !entry->freeing) {
    int file = arena->file < 0 ? arena->physical_file : arena->file;
    bool clean = true;
    arena->reserved -= kind == VGX_SIM_RESERVED;
    if (kind == VGX_SIM_PHYSICAL) {
      vgx_sim_arena_uncharge_locked(arena, entry->nbytes);
      clean = file < 0 || fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                    (off_t)(entry->pages - arena->base), (off_t)entry->nbytes) == 0;
    }
    if (clean) {
      arena->count--;
      memmove(entry, entry + 1, (arena->count - i) * sizeof *entry);
    } else {
      *entry = vgx_sim_arena_buried(entry);
    }
    result = CUDA_SUCCESS;
  }
  pthread_mutex_unlock(&arena->lock);
  return result;
}

uint64_t vgx_sim_arena_reserved(struct vgx_sim_arena *arena, uint64_t address, uint64_t nbytes) {
  pthread_mutex_lock(&arena->lock);
  size_t i = vgx_sim_arena_bound_locked(arena, address);
  const struct vgx_sim_allocation *entry = i < arena->count ? &arena->live[i] : NULL;
  bool hit = entry && entry->kind == VGX_SIM_RESERVED && address >= entry->address &&
             address - entry->address <= entry->nbytes && nbytes <= entry->nbytes - (address - entry->address);
  uint64_t start = hit ? entry->address : 0;
  pthread_mutex_unlock(&arena->lock);
  return start;
}

int vgx_sim_arena_file(struct vgx_sim_arena *arena, uint64_t address, uint64_t *offset) {
  pthread_mutex_lock(&arena->lock);
  if (arena->file < 0 && arena->physical_file < 0) {
    int made = memfd_create("vgpu-physical", MFD_CLOEXEC);
    if (made >= 0 && ftruncate(made, (off_t)(arena->end - arena->base)) != 0) {
      close(made);
      made = -1;
    }
    arena->physical_file = made;
  }
  int file = arena->file < 0 ? arena->physical_file : arena->file;
  *offset = address - arena->base;
  pthread_mutex_unlock(&arena->lock);
  return file;
}

bool vgx_sim_arena_idle(struct vgx_sim_arena *arena, uint64_t address, uint64_t nbytes) {
  pthread_mutex_lock(&arena->lock);
  bool done = vgx_sim_arena_map_idle(arena, address, nbytes, MAP_FIXED) != MAP_FAILED;
  pthread_mutex_unlock(&arena->lock);
  return done;
}
