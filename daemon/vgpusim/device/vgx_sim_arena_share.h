/* Allocations that several processes use. */
#ifndef VGX_SIM_ARENA_SHARE_H
#define VGX_SIM_ARENA_SHARE_H

#include "vgx_sim_arena.h"

/* Where other processes find the allocation of `nbytes` that begins at `address`: in *fd, which is the caller's, from
 * *offset on. Private memory moves into a file for that: it keeps its address and what it holds; nothing may use it
 * meanwhile. INVALID_VALUE: it is gone. */
CUresult vgx_sim_arena_share(struct vgx_sim_arena *arena, uint64_t address, uint64_t nbytes, int *fd, uint64_t *offset);

/* Another process's allocation: `nbytes` > 0 at `offset` of a file of `file_nbytes`; `key` names it. */
struct vgx_sim_shared {
  uint64_t key[2], nbytes, offset, file_nbytes;
  CUmemoryPool pool; /* that it belongs to here; NULL: none */
  int fd;
};

/* Map it; if it is of no pool and mapped for this owner already, count that. It costs this device nothing: the memory
 * is the other's. INVALID_VALUE: the file does not hold the allocation. */
CUresult vgx_sim_arena_open(struct vgx_sim_arena *arena, const struct vgx_sim_shared *shared, void *owner,
                            uint64_t *address);

/* Undo one vgx_sim_arena_open; INVALID_VALUE when none was of this address. */
CUresult vgx_sim_arena_close(struct vgx_sim_arena *arena, uint64_t address);

#endif
