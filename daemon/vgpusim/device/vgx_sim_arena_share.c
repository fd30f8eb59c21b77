/* Allocations that several processes use: this process's allocations move into a file (which vgx_sim_ipc.c passes on),
 * those of others are mapped here and cost nothing. */
#define _GNU_SOURCE
#include "vgx_sim_arena_share.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

static bool is_zero(const uint8_t *page) {
  const uint64_t *words = (const uint64_t *)page;
  for (size_t i = 0; i < VGX_SIM_PAGE_NBYTES / sizeof *words; i++)
    if (words[i])
      return false;
  return true;
}

/* Copy only pages that are not zero: all others stay holes in the new file. */
static bool copy_to_file(const struct vgx_sim_allocation *entry, int fd) {
  for (uint64_t at = entry->pages; at < entry->pages_end; at += VGX_SIM_PAGE_NBYTES)
    if (!is_zero((const uint8_t *)at) &&
        pwrite(fd, (const void *)at, VGX_SIM_PAGE_NBYTES, (off_t)(at - entry->pages)) != (ssize_t)VGX_SIM_PAGE_NBYTES)
      return false;
  return true;
}

/* Move the memory of an allocation into a new file, which the caller owns. */
static CUresult move_to_file(struct vgx_sim_allocation *entry, int *fd) {
  size_t span = entry->pages_end - entry->pages;
  int file = memfd_create("vgpu-device", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file >= 0 && ftruncate(file, (off_t)span) == 0 &&
      fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0 && copy_to_file(entry, file) &&
      mmap((void *)entry->pages, span, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED) {
    entry->moved = true;
    *fd = file;
    return CUDA_SUCCESS;
  }
  if (file >= 0)
    close(file);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult vgx_sim_arena_share(struct vgx_sim_arena *arena, uint64_t address, uint64_t nbytes, int *fd,
                             uint64_t *offset) {
  CUresult result = CUDA_ERROR_INVALID_VALUE; /* freed meanwhile */
  pthread_mutex_lock(&arena->lock);
  size_t i;
  struct vgx_sim_allocation *entry = vgx_sim_arena_linear_locked(arena, address, &i);
  if (entry && entry->nbytes == nbytes && !entry->freeing && !entry->opens) {
    *offset = arena->file < 0 ? 0 : entry->pages - arena->base;
    if (arena->file < 0)
      result = move_to_file(entry, fd);
    else
      result = (*fd = fcntl(arena->file, F_DUPFD_CLOEXEC, 3)) < 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
  }
  pthread_mutex_unlock(&arena->lock);
  return result;
}

CUresult vgx_sim_arena_open(struct vgx_sim_arena *arena, const struct vgx_sim_shared *shared, void *owner,
                            uint64_t *address) {
  const uint64_t *key = shared->key;
  struct vgx_sim_allocation made = {
      .nbytes = shared->nbytes, .owner = owner, .pool = shared->pool, .opens = 1, .key = {key[0], key[1]}};
  uint64_t span = (shared->nbytes + VGX_SIM_PAGE_NBYTES - 1) / VGX_SIM_PAGE_NBYTES * VGX_SIM_PAGE_NBYTES;
  if (shared->offset % VGX_SIM_PAGE_NBYTES || shared->offset > shared->file_nbytes ||
      span > shared->file_nbytes - shared->offset)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  size_t index;
  pthread_mutex_lock(&arena->lock);
  for (index = 0; index < arena->count && !shared->pool; index++) {
    struct vgx_sim_allocation *a = &arena->live[index];
    if (a->opens && a->owner == owner && a->key[0] == key[0] && a->key[1] == key[1]) {
      a->opens++;
      *address = a->address;
      pthread_mutex_unlock(&arena->lock);
      return CUDA_SUCCESS;
    }
  }
  if (vgx_sim_arena_place_locked(arena, &made, 0, &index) &&
      mmap((void *)made.pages, span, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, shared->fd,
           (off_t)shared->offset) != MAP_FAILED) {
    vgx_sim_arena_insert_locked(arena, &made, index);
    *address = made.address;
    result = CUDA_SUCCESS;
  }
  pthread_mutex_unlock(&arena->lock);
  return result;
}

CUresult vgx_sim_arena_close(struct vgx_sim_arena *arena, uint64_t address) {
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&arena->lock);
  size_t i = vgx_sim_arena_bound_locked(arena, address);
  if (i < arena->count && arena->live[i].address == address && arena->live[i].opens) {
    if (arena->live[i].opens > 1)
      arena->live[i].opens--;
    else
      vgx_sim_arena_remove_locked(arena, i);
    result = CUDA_SUCCESS;
  }
  pthread_mutex_unlock(&arena->lock);
  return result;
}
