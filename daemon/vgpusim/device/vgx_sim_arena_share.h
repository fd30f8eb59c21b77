/* Allocations that several processes use. */
#ifndef VGX_SIM_ARENA_SHARE_H
#define VGX_SIM_ARENA_SHARE_H

#include "vgx_sim_arena.h"

/* Find where other processes can map the allocation of `nbytes` that begins at `address`: from *offset on in *fd, which
 * the caller owns. Private memory moves into a file for that and keeps its address and contents; nothing may use it
 * meanwhile. INVALID_VALUE: the allocation does not exist. */
CUresult vgx_sim_arena_share(struct vgx_sim_arena *arena, uint64_t address, uint64_t nbytes, int *fd, uint64_t *offset);

/* Another process's allocation: `nbytes` > 0 at `offset` of a file of `file_nbytes`; `key` names it. */
struct vgx_sim_shared {
  uint64_t key[2], nbytes, offset, file_nbytes;
  CUmemoryPool pool; /* the pool that it belongs to in this process; NULL: none */
  int fd;
};

/* Map the allocation; if it belongs to no pool and `owner` has mapped it already, only count that. It costs this device
 * nothing: the memory is the other process's. INVALID_VALUE: the file does not hold the allocation. */
CUresult vgx_sim_arena_open(struct vgx_sim_arena *arena, const struct vgx_sim_shared *shared, void *owner,
                            uint64_t *address);

/* Undo one vgx_sim_arena_open; INVALID_VALUE: no opened allocation begins at this address. */
CUresult vgx_sim_arena_close(struct vgx_sim_arena *arena, uint64_t address);

#endif
