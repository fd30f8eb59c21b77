/* Device memory: one reservation of address space per device, page by page accessible while it is allocated. Its pages
 * are this process's own, or those of a file that the client maps, too. */
#ifndef VGX_SIM_ARENA_H
#define VGX_SIM_ARENA_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vgw_cuda.h"
#include "vgw_device_memory.h"
#include "vgx_sim_ledger.h"

#define VGX_SIM_PAGE_NBYTES 4096ull

/* The least multiple of `unit` that is not below `value`. */
static inline uint64_t vgx_sim_round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

enum vgx_sim_allocation_kind {
  VGX_SIM_LINEAR,
  VGX_SIM_RESERVED, /* addresses alone: cuMemAddressReserve */
  VGX_SIM_PHYSICAL, /* memory without addresses, a piece of the file: cuMemCreate */
};

struct vgx_sim_allocation {
  uint64_t address;          /* the address that the client received */
  uint64_t nbytes;           /* what it asked for */
  uint64_t pages, pages_end; /* the accessible pages; an inaccessible one follows while allocations are few */
  enum vgx_sim_allocation_kind kind;
  void *owner; /* context, or NULL for a pool's memory */
  CUmemoryPool pool;
  bool freeing;    /* cuMemFreeAsync was called, the stream has not come to it: invisible to lookups */
  bool moved;      /* private memory that lies in a file of its own now, for other processes */
  uint32_t opens;  /* count of cuIpcOpenMemHandle for another process's allocation; 0: it is this process's own */
  uint64_t key[2]; /* identifies the other process's allocation */
};

struct vgx_sim_arena {
  pthread_mutex_t lock; /* leaf */
  uint64_t base, end;
  int file;                        /* of all its memory, base at offset 0; -1: memory is private */
  int physical_file;               /* likewise, for physical memory where there is no such file; -1: not made yet */
  uint64_t capacity_nbytes;        /* the profile's memory */
  uint64_t used_nbytes;            /* pages of live allocations, and what contexts cost */
  struct vgx_sim_share share;      /* shares this process's use with other processes, and theirs with this one */
  uint64_t rover;                  /* next fit starts here, so that a freed address is reused as late as possible */
  struct vgx_sim_allocation *live; /* sorted by address */
  size_t count, room;
  uint32_t reserved;   /* how many of `live` are addresses alone */
  uint64_t generation; /* atomic: counts changes of `live` */
};

/* Reserve the device's addresses. OPERATING_SYSTEM: they are taken. */
CUresult vgx_sim_arena_init(struct vgx_sim_arena *arena, uint32_t device, uint64_t capacity_nbytes);

/* Start allocating at a different address in each session, so that a device pointer which a program has kept from a
 * lost session does not point to something in the next one: `epoch` is the session's, 16 bits. The starts of
 * consecutive epochs are far apart. */
void vgx_sim_arena_start(struct vgx_sim_arena *arena, uint32_t epoch);

/* Put the device's memory into a file of at least VGW_DEVICE_MEMORY_NBYTES that cannot shrink; the descriptor stays the
 * caller's. INVALID_VALUE: the arena has a file; NOT_READY: something is allocated; OPERATING_SYSTEM: it cannot be
 * mapped, and memory stays private. */
CUresult vgx_sim_arena_adopt(struct vgx_sim_arena *arena, int file);

/* Allocate `nbytes` (> 0), zero-filled, 512-byte aligned. OUT_OF_MEMORY when the profile's memory or the host's is used
 * up. */
CUresult vgx_sim_arena_allocate(struct vgx_sim_arena *arena, uint64_t nbytes, void *owner, CUmemoryPool pool,
                                uint64_t *address);

/* Free the allocation that starts at `address`; INVALID_VALUE when none does. `freed` may be NULL. */
CUresult vgx_sim_arena_free(struct vgx_sim_arena *arena, uint64_t address, struct vgx_sim_allocation *freed);

/* Hide the allocation from lookups until it is freed; INVALID_VALUE when none starts there. */
CUresult vgx_sim_arena_hide(struct vgx_sim_arena *arena, uint64_t address);

/* Free everything that `owner` allocated or opened. */
void vgx_sim_arena_free_owner(struct vgx_sim_arena *arena, void *owner);

/* The allocation or reservation that holds `address`; false when none does. */
bool vgx_sim_arena_find(struct vgx_sim_arena *arena, uint64_t address, struct vgx_sim_allocation *found);

/* The allocation nearest below or around `address`, for messages. */
bool vgx_sim_arena_nearest(struct vgx_sim_arena *arena, uint64_t address, struct vgx_sim_allocation *found);

/* Count memory that has no address (a context's own). False: not enough is free. */
bool vgx_sim_arena_charge(struct vgx_sim_arena *arena, uint64_t nbytes);
void vgx_sim_arena_uncharge(struct vgx_sim_arena *arena, uint64_t nbytes);
uint64_t vgx_sim_arena_available(struct vgx_sim_arena *arena); /* to this process */
uint64_t vgx_sim_arena_visible(struct vgx_sim_arena *arena);   /* the device's memory as its client sees it */
uint64_t vgx_sim_arena_used(struct vgx_sim_arena *arena);      /* by this process */

/* From now on the device's memory is counted together with other processes' use. */
void vgx_sim_arena_join(struct vgx_sim_arena *arena, struct vgx_sim_share share);

/* --- for the other files of the arena (vgx_sim_arena_share.c, vgx_sim_arena_reserve.c); arena->lock is held --- */

/* Map [address, address + nbytes) without access, memory or a place in core dumps, in place of what lies there. All
 * idle addresses have these same properties, so that the kernel merges neighbours into one mapping: the number of
 * mappings depends on the live allocations, not on how many there have been. */
void *vgx_sim_arena_map_idle(const struct vgx_sim_arena *arena, uint64_t address, uint64_t nbytes, int fixed);

/* Count memory. False: with what all processes use, not enough is free. */
bool vgx_sim_arena_charge_locked(struct vgx_sim_arena *arena, uint64_t nbytes);

void vgx_sim_arena_uncharge_locked(struct vgx_sim_arena *arena, uint64_t nbytes);

/* Index of the first live allocation whose pages end above `address`. */
size_t vgx_sim_arena_bound_locked(const struct vgx_sim_arena *arena, uint64_t address);

/* Find a place for made->nbytes, at a multiple of `alignment` (0: as the size asks), and fill in where that is; *index
 * is where its entry belongs. */
bool vgx_sim_arena_place_locked(struct vgx_sim_arena *arena, struct vgx_sim_allocation *made, uint64_t alignment,
                                size_t *index);

void vgx_sim_arena_insert_locked(struct vgx_sim_arena *arena, const struct vgx_sim_allocation *made, size_t index);

/* Mark an allocation whose pages could not be released: lookups do not find it, it cannot be freed again, and its
 * address is not reused. */
struct vgx_sim_allocation vgx_sim_arena_buried(const struct vgx_sim_allocation *entry);

void vgx_sim_arena_remove_locked(struct vgx_sim_arena *arena, size_t index);

/* The live allocation that begins at `address`, if it is linear. */
struct vgx_sim_allocation *vgx_sim_arena_linear_locked(struct vgx_sim_arena *arena, uint64_t address, size_t *index);

#endif
