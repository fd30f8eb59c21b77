/* Device memory. Live allocations stand in one array sorted by address; free space is between them.
 *
 * Placement is next fit over a tebibyte: an address is not used again before the whole reservation has been walked. A
 * small allocation ends where its last page ends, so that a step past its 512-byte slot faults at once; one of 2 MiB
 * and more starts on a 2 MiB boundary, as those of the real driver do. Freed pages are replaced by fresh ones, so that
 * no owner reads what another wrote.
 *
 * With a file all of this holds, too: free space is mapped from the file without access, and freed pages are punched
 * out of it. The client that also maps the file may write where nothing is allocated; that harms only its own memory.
 *
 * Other processes map an allocation from that file. Private memory moves into a file when it is exported
 * (vgx_sim_ipc.c). An allocation that another process exported is mapped here and costs nothing.
 *
 * Locking: arena->lock is a leaf; nothing is called with it held but the kernel's calls for memory and its files. */
#define _GNU_SOURCE
#include "vgx_sim_arena.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "vgx_sim_reach.h"

#define ALIGN_NBYTES 512ull
#define LARGE_NBYTES (2ull << 20)
/* Each guarded allocation is a mapping of its own and Linux allows 65,530 of them (vm.max_map_count): past this many,
 * guard pages are left out and neighbours merge. */
#define GUARDED_MAX 24000u

void *vgx_sim_arena_map_idle(const struct vgx_sim_arena *arena, uint64_t address, uint64_t nbytes, int fixed) {
  int kind = arena->file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  off_t offset = arena->file < 0 ? 0 : (off_t)(address - arena->base);
  void *got = mmap((void *)address, nbytes, PROT_NONE, kind | MAP_NORESERVE | fixed, arena->file, offset);
  if (got == (void *)address)
    madvise(got, nbytes, MADV_DONTDUMP);
  return got;
}

CUresult vgx_sim_arena_init(struct vgx_sim_arena *arena, uint32_t device, uint64_t capacity_nbytes) {
  uint64_t base = VGW_DEVICE_MEMORY_BEGIN + device * VGW_DEVICE_MEMORY_NBYTES;
  *arena = (struct vgx_sim_arena){.base = base,
                                  .end = base + VGW_DEVICE_MEMORY_NBYTES,
                                  .file = -1,
                                  .physical_file = -1,
                                  .capacity_nbytes = capacity_nbytes,
                                  .rover = base + LARGE_NBYTES};
  /* The margin below the range that kernels may reach is reserved as well. */
  uint64_t margin = base - VGX_SIM_REACH_MARGIN_NBYTES;
  if (device == 0 &&
      vgx_sim_arena_map_idle(arena, margin, VGX_SIM_REACH_MARGIN_NBYTES, MAP_FIXED_NOREPLACE) != (void *)margin)
    return CUDA_ERROR_OPERATING_SYSTEM;
  void *got = vgx_sim_arena_map_idle(arena, base, VGW_DEVICE_MEMORY_NBYTES, MAP_FIXED_NOREPLACE);
  if (got == MAP_FAILED)
    return CUDA_ERROR_OPERATING_SYSTEM;
  if ((uint64_t)got != base) { /* a kernel before 4.17 takes the address as a hint */
    munmap(got, VGW_DEVICE_MEMORY_NBYTES);
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  pthread_mutex_init(&arena->lock, NULL);
  return CUDA_SUCCESS;
}

void vgx_sim_arena_start(struct vgx_sim_arena *arena, uint32_t epoch) {
  /* The epoch's bits in reverse order give the start as a fraction of the lower half, so that consecutive epochs start
   * far apart; the upper half is free for every start. */
  enum { EPOCH_BITS = 16 };
  uint64_t reversed = 0;
  for (uint32_t bit = 0; bit < EPOCH_BITS; bit++)
    reversed |= (uint64_t)(epoch >> bit & 1) << (EPOCH_BITS - 1 - bit);
  uint64_t offset = (VGW_DEVICE_MEMORY_NBYTES / 2 >> EPOCH_BITS) * reversed;
  pthread_mutex_lock(&arena->lock);
  arena->rover = arena->base + LARGE_NBYTES + offset;
  pthread_mutex_unlock(&arena->lock);
}

CUresult vgx_sim_arena_adopt(struct vgx_sim_arena *arena, int file) {
  CUresult result = CUDA_SUCCESS;
  int mine = fcntl(file, F_DUPFD_CLOEXEC, 3);
  if (mine < 0)
    return CUDA_ERROR_OPERATING_SYSTEM;
  pthread_mutex_lock(&arena->lock);
  if (arena->file >= 0 || arena->count) {
    result = arena->file >= 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_READY;
  } else {
    arena->file = mine;
    if (vgx_sim_arena_map_idle(arena, arena->base, VGW_DEVICE_MEMORY_NBYTES, MAP_FIXED) == MAP_FAILED) {
      arena->file = -1;
      result = CUDA_ERROR_OPERATING_SYSTEM;
      if (vgx_sim_arena_map_idle(arena, arena->base, VGW_DEVICE_MEMORY_NBYTES, MAP_FIXED) == MAP_FAILED)
        /* the addresses may already be in use by another mapping: nothing is allocated */
        arena->capacity_nbytes = arena->used_nbytes;
    }
  }
  pthread_mutex_unlock(&arena->lock);
  if (result != CUDA_SUCCESS)
    close(mine);
  return result;
}

bool vgx_sim_arena_charge_locked(struct vgx_sim_arena *arena, uint64_t nbytes) {
  if (arena->used_nbytes > arena->capacity_nbytes || nbytes > arena->capacity_nbytes - arena->used_nbytes)
    return false;
  arena->used_nbytes += nbytes;
  vgx_sim_share_write(&arena->share, arena->used_nbytes);
  if (vgx_sim_share_room(&arena->share, arena->used_nbytes, arena->capacity_nbytes) >= 0)
    return true;
  arena->used_nbytes -= nbytes;
  vgx_sim_share_write(&arena->share, arena->used_nbytes);
  return false;
}

void vgx_sim_arena_uncharge_locked(struct vgx_sim_arena *arena, uint64_t nbytes) {
  arena->used_nbytes -= nbytes;
  vgx_sim_share_write(&arena->share, arena->used_nbytes);
}

size_t vgx_sim_arena_bound_locked(const struct vgx_sim_arena *arena, uint64_t address) {
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

/* The gap at or above `from` that takes `span` bytes aligned to `align`; *index is the place of its entry in `live`. */
static bool find_gap(const struct vgx_sim_arena *arena, uint64_t from, uint64_t span, uint64_t align, uint64_t *start,
                     size_t *index) {
  uint64_t at = from;
  for (size_t i = vgx_sim_arena_bound_locked(arena, from);; i++) {
    uint64_t limit = i < arena->count ? arena->live[i].pages : arena->end;
    at = vgx_sim_round_up(at, align);
    if (at <= limit && limit - at >= span) {
      *start = at;
      *index = i;
      return true;
    }
    if (i >= arena->count)
      return false;
    /* Keep the page after an allocation free, as a guard page. */
    uint64_t guard = arena->count < GUARDED_MAX ? VGX_SIM_PAGE_NBYTES : 0;
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

bool vgx_sim_arena_place_locked(struct vgx_sim_arena *arena, struct vgx_sim_allocation *made, uint64_t alignment,
                                size_t *index) {
  bool large = made->nbytes >= LARGE_NBYTES;
  uint64_t span = vgx_sim_round_up(made->nbytes, VGX_SIM_PAGE_NBYTES);
  uint64_t guard = arena->count < GUARDED_MAX ? VGX_SIM_PAGE_NBYTES : 0;
  uint64_t align = large ? LARGE_NBYTES : VGX_SIM_PAGE_NBYTES, start;
  align = alignment > align ? alignment : align;
  if (!reserve_entry(arena) || (!find_gap(arena, arena->rover, span + guard, align, &start, index) &&
                                !find_gap(arena, arena->base + LARGE_NBYTES, span + guard, align, &start, index)))
    return false;
  made->pages = start;
  made->pages_end = start + span;
  made->address = large ? start : start + span - vgx_sim_round_up(made->nbytes, ALIGN_NBYTES);
  return true;
}

void vgx_sim_arena_insert_locked(struct vgx_sim_arena *arena, const struct vgx_sim_allocation *made, size_t index) {
  memmove(&arena->live[index + 1], &arena->live[index], (arena->count - index) * sizeof *arena->live);
  arena->live[index] = *made;
  arena->count++;
  __atomic_add_fetch(&arena->generation, 1, __ATOMIC_RELEASE);
  arena->rover = made->pages_end + (arena->count <= GUARDED_MAX ? VGX_SIM_PAGE_NBYTES : 0);
}

static CUresult allocate_locked(struct vgx_sim_arena *arena, struct vgx_sim_allocation *made) {
  size_t index;
  uint64_t span = vgx_sim_round_up(made->nbytes, VGX_SIM_PAGE_NBYTES);
  if (!vgx_sim_arena_charge_locked(arena, span))
    return CUDA_ERROR_OUT_OF_MEMORY;
  if (!vgx_sim_arena_place_locked(arena, made, 0, &index) ||
      mprotect((void *)made->pages, span, PROT_READ | PROT_WRITE) != 0) {
    vgx_sim_arena_uncharge_locked(arena, span);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (made->nbytes >= LARGE_NBYTES &&
      arena->file <
          0) /* in a file, the advice would keep the mapping from merging with its neighbours when it is freed */
    madvise((void *)made->pages, span, MADV_HUGEPAGE); /* an optimisation: a kernel without huge pages refuses it */
  vgx_sim_arena_insert_locked(arena, made, index);
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
  CUresult result = allocate_locked(arena, &made);
  pthread_mutex_unlock(&arena->lock);
  if (result == CUDA_SUCCESS)
    *address = made.address;
  return result;
}

/* Release the pages: what is mapped in their place reads as zero when it is next made accessible. False: they could not
 * be released, and the address must never be used again. */
static bool release_pages(struct vgx_sim_arena *arena, const struct vgx_sim_allocation *entry) {
  size_t nbytes = entry->pages_end - entry->pages;
  void *pages = (void *)entry->pages;
  if (!entry->opens)
    vgx_sim_arena_uncharge_locked(arena, nbytes);
  if (arena->file >= 0 && !entry->opens)
    return fallocate(arena->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(entry->pages - arena->base),
                     (off_t)nbytes) == 0 &&
           mprotect(pages, nbytes, PROT_NONE) == 0;
  if (vgx_sim_arena_map_idle(arena, entry->pages, nbytes, MAP_FIXED) != MAP_FAILED)
    return true;
  /* No further mappings are allowed: release the pages in two steps that need none. The pages of a file must be punched
   * out, or their old contents would be seen again. */
  bool in_file = entry->moved || entry->opens;
  if (!in_file)
    madvise(pages, nbytes, MADV_DONTNEED);
  mprotect(pages, nbytes, PROT_NONE);
  return !in_file;
}

struct vgx_sim_allocation vgx_sim_arena_buried(const struct vgx_sim_allocation *entry) {
  return (struct vgx_sim_allocation){.pages = entry->pages, .pages_end = entry->pages_end, .freeing = true};
}

void vgx_sim_arena_remove_locked(struct vgx_sim_arena *arena, size_t index) {
  __atomic_add_fetch(&arena->generation, 1, __ATOMIC_RELEASE);
  if (!release_pages(arena, &arena->live[index])) {
    arena->live[index] = vgx_sim_arena_buried(&arena->live[index]);
    return;
  }
  arena->count--;
  memmove(&arena->live[index], &arena->live[index + 1], (arena->count - index) * sizeof *arena->live);
}

struct vgx_sim_allocation *vgx_sim_arena_linear_locked(struct vgx_sim_arena *arena, uint64_t address, size_t *index) {
  size_t i = *index = vgx_sim_arena_bound_locked(arena, address);
  bool hit = i < arena->count && arena->live[i].address == address && arena->live[i].kind == VGX_SIM_LINEAR;
  return hit ? &arena->live[i] : NULL;
}

CUresult vgx_sim_arena_free(struct vgx_sim_arena *arena, uint64_t address, struct vgx_sim_allocation *freed) {
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&arena->lock);
  size_t i;
  struct vgx_sim_allocation *entry = vgx_sim_arena_linear_locked(arena, address, &i);
  if (entry) {
    if (freed)
      *freed = *entry;
    vgx_sim_arena_remove_locked(arena, i);
    result = CUDA_SUCCESS;
  }
  pthread_mutex_unlock(&arena->lock);
  return result;
}

CUresult vgx_sim_arena_hide(struct vgx_sim_arena *arena, uint64_t address) {
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&arena->lock);
  size_t i;
  struct vgx_sim_allocation *entry = vgx_sim_arena_linear_locked(arena, address, &i);
  if (entry && !entry->freeing && (!entry->opens || entry->pool)) {
    entry->freeing = true;
    result = CUDA_SUCCESS;
  }
  pthread_mutex_unlock(&arena->lock);
  return result;
}

void vgx_sim_arena_free_owner(struct vgx_sim_arena *arena, void *owner) {
  pthread_mutex_lock(&arena->lock);
  size_t kept = 0;
  for (size_t i = 0; i < arena->count; i++) {
    if (arena->live[i].owner != owner)
      arena->live[kept++] = arena->live[i];
    else if (!release_pages(arena, &arena->live[i]))
      arena->live[kept++] = vgx_sim_arena_buried(&arena->live[i]);
  }
  arena->count = kept;
  pthread_mutex_unlock(&arena->lock);
}

bool vgx_sim_arena_find(struct vgx_sim_arena *arena, uint64_t address, struct vgx_sim_allocation *found) {
  if (address < arena->base || address >= arena->end)
    return false;
  pthread_mutex_lock(&arena->lock);
  size_t i = vgx_sim_arena_bound_locked(arena, address);
  bool hit = i < arena->count && address >= arena->live[i].address &&
             address - arena->live[i].address < arena->live[i].nbytes && !arena->live[i].freeing &&
             arena->live[i].kind != VGX_SIM_PHYSICAL;
  if (hit)
    *found = arena->live[i];
  pthread_mutex_unlock(&arena->lock);
  return hit;
}

bool vgx_sim_arena_nearest(struct vgx_sim_arena *arena, uint64_t address, struct vgx_sim_allocation *found) {
  pthread_mutex_lock(&arena->lock);
  size_t i = vgx_sim_arena_bound_locked(arena, address);
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
  bool fits = vgx_sim_arena_charge_locked(arena, nbytes);
  pthread_mutex_unlock(&arena->lock);
  return fits;
}

void vgx_sim_arena_uncharge(struct vgx_sim_arena *arena, uint64_t nbytes) {
  pthread_mutex_lock(&arena->lock);
  vgx_sim_arena_uncharge_locked(arena, nbytes);
  pthread_mutex_unlock(&arena->lock);
}

uint64_t vgx_sim_arena_available(struct vgx_sim_arena *arena) {
  pthread_mutex_lock(&arena->lock);
  int64_t room = vgx_sim_share_room(&arena->share, arena->used_nbytes, arena->capacity_nbytes);
  pthread_mutex_unlock(&arena->lock);
  return room > 0 ? (uint64_t)room : 0;
}

uint64_t vgx_sim_arena_visible(struct vgx_sim_arena *arena) {
  pthread_mutex_lock(&arena->lock);
  uint64_t visible = vgx_sim_share_capacity(&arena->share, arena->capacity_nbytes);
  pthread_mutex_unlock(&arena->lock);
  return visible;
}

uint64_t vgx_sim_arena_used(struct vgx_sim_arena *arena) {
  pthread_mutex_lock(&arena->lock);
  uint64_t used = arena->used_nbytes;
  pthread_mutex_unlock(&arena->lock);
  return used;
}

void vgx_sim_arena_join(struct vgx_sim_arena *arena, struct vgx_sim_share share) {
  pthread_mutex_lock(&arena->lock);
  arena->share = share;
  vgx_sim_share_write(&arena->share, arena->used_nbytes);
  pthread_mutex_unlock(&arena->lock);
}
