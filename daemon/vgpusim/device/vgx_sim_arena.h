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

enum vgx_sim_allocation_kind {
  VGX_SIM_LINEAR,
  VGX_SIM_RESERVED, /* addresses alone: cuMemAddressReserve */
  VGX_SIM_PHYSICAL, /* a piece of the file alone: cuMemCreate */
};

struct vgx_sim_allocation {
  uint64_t address;          /* the address that the client received */
  uint64_t nbytes;           /* what it asked for */
  uint64_t pages, pages_end; /* the accessible pages; an inaccessible one follows while allocations are few */
  enum vgx_sim_allocation_kind kind;
  void *owner; /* context, or NULL: a pool's */
  CUmemoryPool pool;
  bool freeing;    /* cuMemFreeAsync was called, the stream has not come to it: invisible to lookups */
  bool moved;      /* private memory that lies in a file of its own now, for other processes */
  uint32_t opens;  /* count of cuIpcOpenMemHandle for another process's allocation; 0: it is this process's own */
  uint64_t key[2]; /* likewise: which one it is */
};

struct vgx_sim_arena {
  pthread_mutex_t lock; /* leaf */
  uint64_t base, end;
  int file;                        /* of all its memory, base at offset 0; -1: memory is private */
  int physical_file;               /* likewise, for physical memory where there is no such file; -1: not made yet */
  uint64_t capacity_nbytes;        /* the profile's memory */
  uint64_t used_nbytes;            /* pages of live allocations, and what contexts cost */
  struct vgx_sim_share share;      /* where others see that, and this process what they use */
  uint64_t rover;                  /* next fit starts here, so that a freed address is reused as late as possible */
  struct vgx_sim_allocation *live; /* sorted by address */
  size_t count, room;
  uint64_t generation; /* atomic: counts changes of `live` */
};

/* 0, or OPERATING_SYSTEM when the addresses are taken. */
CUresult vgx_sim_arena_init(struct vgx_sim_arena *arena, uint32_t device, uint64_t capacity_nbytes);

/* Allocate from another place on in each session, so that a device pointer which a program has kept from a lost session
 * is not the address of something in the next one: `epoch` is the session's, 16 bits. Consecutive epochs lie farthest
 * apart. */
void vgx_sim_arena_start(struct vgx_sim_arena *arena, uint32_t epoch);

/* Put the device's memory into a file of at least VGW_DEVICE_MEMORY_NBYTES that cannot shrink; the descriptor stays the
 * caller's. INVALID_VALUE: it has such a file; NOT_READY: something is allocated; OPERATING_SYSTEM: it cannot be
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

/* Where other processes find the allocation of `nbytes` that begins at `address`: in *fd, which is the caller's, from
 * *offset on. Private memory moves into a file for that: it keeps its address and what it holds; nothing may use it
 * meanwhile. INVALID_VALUE: it is gone. */
CUresult vgx_sim_arena_share(struct vgx_sim_arena *arena, uint64_t address, uint64_t nbytes, int *fd, uint64_t *offset);

/* Another process's allocation: `nbytes` > 0 at `offset` of a file of `file_nbytes`; `key` names it. */
struct vgx_sim_shared {
  uint64_t key[2], nbytes, offset, file_nbytes;
  int fd;
};

/* Map it; if it is mapped for this owner already, count that. It costs this device nothing: the memory is the other's.
 * INVALID_VALUE: the file does not hold the allocation. */
CUresult vgx_sim_arena_open(struct vgx_sim_arena *arena, const struct vgx_sim_shared *shared, void *owner,
                            uint64_t *address);

/* Undo one vgx_sim_arena_open; INVALID_VALUE when none was of this address. */
CUresult vgx_sim_arena_close(struct vgx_sim_arena *arena, uint64_t address);

/* Free everything that `owner` allocated or opened. */
void vgx_sim_arena_free_owner(struct vgx_sim_arena *arena, void *owner);

/* Addresses without memory, or memory without addresses, for vgx_sim_virtual.c: `nbytes` (> 0), at a multiple of 2 MiB.
 * Physical memory is accounted for. */
CUresult vgx_sim_arena_reserve(struct vgx_sim_arena *arena, uint64_t nbytes, enum vgx_sim_allocation_kind kind,
                               uint64_t *address);
CUresult vgx_sim_arena_unreserve(struct vgx_sim_arena *arena, uint64_t address, enum vgx_sim_allocation_kind kind);

/* Where the reservation begins that holds all of the range; 0: none does. */
uint64_t vgx_sim_arena_reserved(struct vgx_sim_arena *arena, uint64_t address, uint64_t nbytes);

/* The file of physical memory, and where in it what is reserved at `address` begins; -1: there is none. */
int vgx_sim_arena_file(struct vgx_sim_arena *arena, uint64_t address, uint64_t *offset);

/* Make part of a reservation inaccessible again. */
bool vgx_sim_arena_idle(struct vgx_sim_arena *arena, uint64_t address, uint64_t nbytes);

/* The allocation or reservation that holds `address`; false when none does. */
bool vgx_sim_arena_find(struct vgx_sim_arena *arena, uint64_t address, struct vgx_sim_allocation *found);

/* The allocation nearest below or around `address`, for messages. */
bool vgx_sim_arena_nearest(struct vgx_sim_arena *arena, uint64_t address, struct vgx_sim_allocation *found);

/* Account for memory that has no address (a context's own): false when it does not fit. */
bool vgx_sim_arena_charge(struct vgx_sim_arena *arena, uint64_t nbytes);
void vgx_sim_arena_uncharge(struct vgx_sim_arena *arena, uint64_t nbytes);
uint64_t vgx_sim_arena_available(struct vgx_sim_arena *arena); /* to this process */
uint64_t vgx_sim_arena_visible(struct vgx_sim_arena *arena);   /* the device's memory as its client sees it */
uint64_t vgx_sim_arena_used(struct vgx_sim_arena *arena);      /* by this process */

/* From now on the device's memory is shared with other processes. */
void vgx_sim_arena_join(struct vgx_sim_arena *arena, struct vgx_sim_share share);

#endif
