/* Device memory. Live allocations stand in one array sorted by address; free space is what lies between them.
 *
 * Placement is next fit over a tebibyte: an address is not used again before the whole reservation has been walked. A
 * small allocation ends where its last page ends, so that a step past its 512-byte slot faults at once; one of 2 MiB
 * and more starts on a 2 MiB boundary, as the real driver's do. Freed pages are replaced by fresh ones, so what one
 * owner wrote is never read by another.
 *
 * Locking: arena->lock is a leaf; nothing is called with it held but the kernel's memory calls. */
#define _GNU_SOURCE
#include "vgx_sim_arena.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE_NBYTES 4096ull
#define ALIGN_NBYTES 512ull
#define LARGE_NBYTES (2ull << 20)
/* Each guarded allocation is a mapping of its own and Linux allows 65,530 of them (vm.max_map_count): past this many,
 * guard pages are left out and neighbours merge. */
#define GUARDED_MAX 24000u

static uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

CUresult vgx_sim_arena_init(struct vgx_sim_arena *arena, uint32_t device, uint64_t capacity_nbytes) {
  uint64_t base = VGX_SIM_ARENA_BASE + device * VGX_SIM_ARENA_NBYTES;
  void *got = mmap((void *)base, VGX_SIM_ARENA_NBYTES, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == MAP_FAILED)
    return CUDA_ERROR_OPERATING_SYSTEM;
  if ((uint64_t)got != base) { /* a kernel before 4.17 takes the address as a hint */
    munmap(got, VGX_SIM_ARENA_NBYTES);
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  madvise(got, VGX_SIM_ARENA_NBYTES, MADV_DONTDUMP);
  *arena = (struct vgx_sim_arena){.base = base,
                                  .end = base + VGX_SIM_ARENA_NBYTES,
                                  .capacity_nbytes = capacity_nbytes,
                                  .rover = base + LARGE_NBYTES};
  pthread_mutex_init(&arena->lock, NULL);
  return CUDA_SUCCESS;
}

/* Index of the first live allocation whose pages end above `address`. */
static size_t lower_bound(const struct vgx_sim_arena *arena, uint64_t address) {
  size_t low = 0, high = arena->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (arena->live[middle].pages_end <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* The gap at or above `from` that takes `span` bytes aligned to `align`; *index is where its allocation belongs. */
static bool find_gap(const struct vgx_sim_arena *arena, uint64_t from, uint64_t span, uint64_t align, uint64_t *start,
                     size_t *index) {
  uint64_t at = from;
  for (size_t i = lower_bound(arena, from);; i++) {
    uint64_t limit = i < arena->count ? arena->live[i].pages : arena->end;
    at = round_up(at, align);
    if (at <= limit && limit - at >= span) {
      *start = at;
      *index = i;
      return true;
    }
    if (i >= arena->count)
      return false;
    /* Keep the page after an allocation free: it is its guard. */
    uint64_t guard = arena->count < GUARDED_MAX ? PAGE_NBYTES : 0;
    at = arena->live[i].pages_end + guard;
  }
}

static bool reserve_entry(struct vgx_sim_arena *arena) {
  if (arena->count < arena->room)
    return true;
  size_t room = arena->room ? arena->room * 2 : 64;
  void *grown = realloc(arena->live, room * sizeof *arena->live);
  if (!grown)
    return false;
  arena->live = grown;
  arena->room = room;
  return true;
}

static CUresult allocate_locked(struct vgx_sim_arena *arena, uint64_t nbytes, struct vgx_sim_allocation *made) {
  bool large = nbytes >= LARGE_NBYTES;
  uint64_t span = round_up(nbytes, PAGE_NBYTES);
  if (span > arena->capacity_nbytes - arena->used_nbytes)
    return CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t guard = arena->count < GUARDED_MAX ? PAGE_NBYTES : 0;
  uint64_t align = large ? LARGE_NBYTES : PAGE_NBYTES, start;
  size_t index;
  if (!reserve_entry(arena) || (!find_gap(arena, arena->rover, span + guard, align, &start, &index) &&
                                !find_gap(arena, arena->base + LARGE_NBYTES, span + guard, align, &start, &index)))
    return CUDA_ERROR_OUT_OF_MEMORY;
  if (mprotect((void *)start, span, PROT_READ | PROT_WRITE) != 0)
    return CUDA_ERROR_OUT_OF_MEMORY;
  if (large)
    madvise((void *)start, span, MADV_HUGEPAGE); /* an optimisation: a kernel without huge pages refuses it */
  made->pages = start;
  made->pages_end = start + span;
  made->address = large ? start : start + span - round_up(nbytes, ALIGN_NBYTES);
  memmove(&arena->live[index + 1], &arena->live[index], (arena->count - index) * sizeof *arena->live);
  arena->live[index] = *made;
  arena->count++;
  arena->used_nbytes += span;
  arena->rover = start + span + guard;
  return CUDA_SUCCESS;
}

CUresult vgx_sim_arena_allocate(struct vgx_sim_arena *arena, uint64_t nbytes, void *owner, CUmemoryPool pool,
                                uint64_t *address) {
  if (nbytes == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (nbytes > arena->capacity_nbytes)
    return CUDA_ERROR_OUT_OF_MEMORY;
  struct vgx_sim_allocation made = {.nbytes = nbytes, .owner = owner, .pool = pool};
  pthread_mutex_lock(&arena->lock);
  CUresult result = allocate_locked(arena, nbytes, &made);
  pthread_mutex_unlock(&arena->lock);
  if (result == CUDA_SUCCESS)
    *address = made.address;
  return result;
}

/* Give the pages back: what is mapped in their place reads as zero when it is next made accessible. */
static void release_pages(struct vgx_sim_arena *arena, const struct vgx_sim_allocation *entry) {
  size_t nbytes = entry->pages_end - entry->pages;
  void *got =
      mmap((void *)entry->pages, nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (got == MAP_FAILED) { /* too many mappings: the same in two steps, which needs none */
    madvise((void *)entry->pages, nbytes, MADV_DONTNEED);
    mprotect((void *)entry->pages, nbytes, PROT_NONE);
  }
  arena->used_nbytes -= nbytes;
}

static void remove_entry(struct vgx_sim_arena *arena, size_t index) {
  release_pages(arena, &arena->live[index]);
  arena->count--;
  memmove(&arena->live[index], &arena->live[index + 1], (arena->count - index) * sizeof *arena->live);
}

CUresult vgx_sim_arena_free(struct vgx_sim_arena *arena, uint64_t address, struct vgx_sim_allocation *freed) {
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&arena->lock);
  size_t i = lower_bound(arena, address);
  if (i < arena->count && arena->live[i].address == address) {
    if (freed)
      *freed = arena->live[i];
    remove_entry(arena, i);
    result = CUDA_SUCCESS;
  }
  pthread_mutex_unlock(&arena->lock);
  return result;
}

CUresult vgx_sim_arena_retire(struct vgx_sim_arena *arena, uint64_t address) {
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&arena->lock);
  size_t i = lower_bound(arena, address);
  if (i < arena->count && arena->live[i].address == address && !arena->live[i].freeing) {
    arena->live[i].freeing = true;
    result = CUDA_SUCCESS;
  }
  pthread_mutex_unlock(&arena->lock);
  return result;
}

void vgx_sim_arena_free_owner(struct vgx_sim_arena *arena, void *owner) {
  pthread_mutex_lock(&arena->lock);
  size_t kept = 0;
  for (size_t i = 0; i < arena->count; i++) {
    if (arena->live[i].owner == owner)
      release_pages(arena, &arena->live[i]);
    else
      arena->live[kept++] = arena->live[i];
  }
  arena->count = kept;
  pthread_mutex_unlock(&arena->lock);
}

bool vgx_sim_arena_find(struct vgx_sim_arena *arena, uint64_t address, struct vgx_sim_allocation *found) {
  if (address < arena->base || address >= arena->end)
    return false;
  pthread_mutex_lock(&arena->lock);
  size_t i = lower_bound(arena, address);
  bool hit = i < arena->count && address >= arena->live[i].address &&
             address - arena->live[i].address < arena->live[i].nbytes && !arena->live[i].freeing;
  if (hit)
    *found = arena->live[i];
  pthread_mutex_unlock(&arena->lock);
  return hit;
}

bool vgx_sim_arena_nearest(struct vgx_sim_arena *arena, uint64_t address, struct vgx_sim_allocation *found) {
  pthread_mutex_lock(&arena->lock);
  size_t i = lower_bound(arena, address);
  if (i == arena->count || (i > 0 && address < arena->live[i].pages))
    i--;
  bool hit = arena->count > 0;
  if (hit)
    *found = arena->live[i];
  pthread_mutex_unlock(&arena->lock);
  return hit;
}

bool vgx_sim_arena_charge(struct vgx_sim_arena *arena, uint64_t nbytes) {
  pthread_mutex_lock(&arena->lock);
  bool fits = nbytes <= arena->capacity_nbytes - arena->used_nbytes;
  if (fits)
    arena->used_nbytes += nbytes;
  pthread_mutex_unlock(&arena->lock);
  return fits;
}

void vgx_sim_arena_uncharge(struct vgx_sim_arena *arena, uint64_t nbytes) {
  pthread_mutex_lock(&arena->lock);
  arena->used_nbytes -= nbytes;
  pthread_mutex_unlock(&arena->lock);
}

uint64_t vgx_sim_arena_available(struct vgx_sim_arena *arena) {
  pthread_mutex_lock(&arena->lock);
  uint64_t available = arena->capacity_nbytes - arena->used_nbytes;
  pthread_mutex_unlock(&arena->lock);
  return available;
}
