/* Every address range the client knows: allocations, module variables, pinned and registered host memory. It answers
 * what an address is without asking the worker. */
#ifndef VGS_RANGE_H
#define VGS_RANGE_H

#include "vgs_objects.h"
#include "vgw_cuda.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum vgs_range_kind {
  VGS_RANGE_DEVICE, /* cuMemAlloc, cuMemAllocPitch */
  VGS_RANGE_POOL,   /* cuMemAllocAsync */
  VGS_RANGE_GRAPH,  /* of an allocation in a graph: each launch allocates it again, so freeing it does not end the range
                     */
  VGS_RANGE_VARIABLE,   /* of a module or library */
  VGS_RANGE_IMPORTED,   /* cuIpcOpenMemHandle */
  VGS_RANGE_PINNED,     /* cuMemHostAlloc */
  VGS_RANGE_MANAGED,    /* cuMemAllocManaged, managed variables: host memory for copies */
  VGS_RANGE_REGISTERED, /* cuMemHostRegister */
};

struct vgs_range {
  uint64_t base, nbytes;
  enum vgs_range_kind kind;
  bool shared;   /* pinned memory that the worker maps at the same address */
  bool is_apart; /* physical memory that is mapped there (vgs_apart.h) */
  uint32_t flags;
  uint32_t context_id; /* wire id; the range dies with it */
  uint64_t allocation; /* of a mapping: handle of the physical memory; else 0 */
  uint32_t opens;      /* of an imported range */
  CUcontext context;
  CUdevice device;
  uint64_t buffer_id; /* unique in the process; set by vgs_range_add */
  /* Advice about managed memory: devices, -1 the CPU, -2 none; a bit for each device, the CPU's first. */
  CUdevice preferred, prefetched;
  uint64_t accessed_by;
  bool read_mostly;
  bool sync_memops;        /* synchronous copies and fills are complete on return */
  uint64_t device_address; /* of registered memory: its device address; 0: none */
};

static inline bool vgs_range_is_host(const struct vgs_range *range) { return range->kind >= VGS_RANGE_PINNED; }

/* Fill in the current context and add the range. A new allocation removes the ranges that it overlaps, which must be
 * stale (variables of an unloaded module, registered memory that the program unmapped). Registered memory may not
 * overlap any range. Errors: OUT_OF_MEMORY; HOST_MEMORY_ALREADY_REGISTERED. */
CUresult vgs_range_add(struct vgs_range *range);

/* An imported range may be opened several times; this drops one reference. False: there is no such range. */
bool vgs_range_close(uint64_t base);

/* Add a new allocation on a device. OUT_OF_MEMORY: the range stays unknown, and every call would refuse it. */
CUresult vgs_range_add_allocation(uint64_t base, uint64_t nbytes, enum vgs_range_kind kind, bool is_apart,
                                  CUdevice device);

/* The bytes that rows occupy; UINT64_MAX on overflow, which no range can hold. */
static inline uint64_t vgs_rows_nbytes(uint64_t pitch, uint64_t rows) {
  uint64_t nbytes;
  return __builtin_mul_overflow(pitch, rows, &nbytes) ? UINT64_MAX : nbytes;
}

/* Remove the allocation that begins at `base`, which is about to be freed. False: no allocation of cuMemAlloc, its
 * variants or a pool begins there. */
bool vgs_range_end(uint64_t base);

/* Add a mapping of cuMemMap, which belongs to a device and outlives contexts; no context need be current. */
CUresult vgs_range_add_mapping(struct vgs_range *range, const struct vgs_context *primary);

/* Add a module's variable; replaces an earlier entry. */
void vgs_range_add_variable(uint64_t address, uint64_t nbytes);

/* The device's address of host memory; 0: it has none. */
static inline uint64_t vgs_range_device_address(const struct vgs_range *range, uint64_t address) {
  return range->shared ? address : range->device_address ? range->device_address + (address - range->base) : 0;
}

/* Store the device address of a range that has been added. */
void vgs_range_set_device_address(const struct vgs_range *range);

/* Store the advice of a range that vgs_range_find returned; without effect if the range has ended since. */
void vgs_range_set_advice(const struct vgs_range *range);

/* Set whether synchronous copies and fills of the range that holds an address are complete on return. False: there is
 * no such range. */
bool vgs_range_set_sync_memops(uint64_t address, bool sync_memops);

/* Whether they must be for either address. */
extern _Atomic bool vgs_range_any_sync_memops; /* some range was ever set so */
bool vgs_range_is_sync_memops(uint64_t address);
static inline bool vgs_range_completes(uint64_t address, uint64_t other) {
  return __builtin_expect(vgs_range_any_sync_memops, false) &&
         (vgs_range_is_sync_memops(address) || vgs_range_is_sync_memops(other));
}

/* The range that holds an address. */
bool vgs_range_find(uint64_t address, struct vgs_range *found);

/* The first range of host memory in a context that begins at `from` or above it. */
bool vgs_range_next_host(uint32_t context_id, uint64_t from, struct vgs_range *found);

/* Remove the range that begins at `base`. False if there is none, or it is host memory although a device range was
 * wanted, or the other way round. */
bool vgs_range_remove(uint64_t base, bool host, struct vgs_range *removed);

/* Called for a range that ends because its context does, or because another one has taken its place; its memory is
 * still mapped, unless the program has unmapped it. Atomic; NULL: nobody asks. The function must not use this
 * file's. */
extern void (*vgs_range_ended)(const struct vgs_range *range);

/* Remove all ranges of a context and unmap its pinned memory; remove all ranges. */
void vgs_range_remove_context(uint32_t context_id);
void vgs_range_remove_all(void);

/* Free the bookkeeping at the library's end. Pinned memory stays mapped: at exit other threads of the program may be
 * using it. */
void vgs_range_fini(void);

/* Give pinned memory back to the system; the range is already removed. */
void vgs_range_unmap(const struct vgs_range *range);

#endif
