/* Addresses without memory, and memory without addresses, for vgx_sim_virtual.c. */
#ifndef VGX_SIM_ARENA_RESERVE_H
#define VGX_SIM_ARENA_RESERVE_H

#include "vgx_sim_arena.h"

/* Reserve `nbytes` (> 0) of addresses or of physical memory, at a multiple of 2 MiB and of `alignment`, a power of two
 * or 0, and at the first such multiple of 64 MiB from `hint` on if that is free. Physical memory is accounted for. */
CUresult vgx_sim_arena_reserve(struct vgx_sim_arena *arena, uint64_t nbytes, enum vgx_sim_allocation_kind kind,
                               uint64_t alignment, uint64_t hint, uint64_t *address);
CUresult vgx_sim_arena_unreserve(struct vgx_sim_arena *arena, uint64_t address, enum vgx_sim_allocation_kind kind);

/* The start of the reservation that holds all of the range; 0: none does. */
uint64_t vgx_sim_arena_reserved(struct vgx_sim_arena *arena, uint64_t address, uint64_t nbytes);

/* The file of physical memory, and the offset in it of the memory that is reserved at `address`. -1: there is none. */
int vgx_sim_arena_file(struct vgx_sim_arena *arena, uint64_t address, uint64_t *offset);

/* Make part of a reservation inaccessible again. */
bool vgx_sim_arena_idle(struct vgx_sim_arena *arena, uint64_t address, uint64_t nbytes);

#endif
