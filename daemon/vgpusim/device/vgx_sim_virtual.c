/* Virtual memory management. An address range is reserved in a device's arena; physical memory is a piece of the
 * device's file (or of one made for this, where the device's memory is private); mapping lays the one over the other,
 * as often as the program likes. Everything comes in whole granules.
 *
 * Locking: `lock` guards mappings and physical memory's counts; the arena's lock is taken under it. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "vgx_sim_internal.h"

#define GRANULE_NBYTES (2ull << 20)
#define MAPPINGS_MAX 16384u /* each is a mapping of the process's, of which the kernel allows 65,530 */

enum { TYPE_PINNED = 1, LOCATION_DEVICE = 1, ACCESS_READ = 1, ACCESS_READWRITE = 3 };

/* What cuMemCreate made: freed when it is released and nothing maps it. */
struct physical {
  struct vgx_sim_device *device;
  uint64_t address, nbytes; /* its place in the arena, where nobody sees it */
  uint32_t mappings;
  bool released;
};

struct mapping {
  uint64_t address, nbytes;
  struct physical *physical;
  uint32_t access;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mapping *mappings; /* sorted, apart from each other */
static size_t mapping_count, mapping_room;

static bool is_granular(uint64_t address, uint64_t nbytes) {
  return nbytes && address % GRANULE_NBYTES == 0 && nbytes % GRANULE_NBYTES == 0 && address <= UINT64_MAX - nbytes;
}

/* Index of the first mapping that ends above `address`. */
static size_t bound_locked(uint64_t address) {
  size_t low = 0, high = mapping_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (mappings[middle].address + mappings[middle].nbytes <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

bool vgx_sim_virtual_find(uint64_t address, struct vgx_sim_allocation *found) {
  pthread_mutex_lock(&lock);
  size_t i = bound_locked(address), last = i;
  bool hit = i < mapping_count && mappings[i].address <= address && mappings[i].access;
  while (hit && last + 1 < mapping_count && mappings[last + 1].access &&
         mappings[last + 1].address == mappings[last].address + mappings[last].nbytes)
    last++; /* neighbours are one to copies */
  if (hit)
    *found = (struct vgx_sim_allocation){.address = mappings[i].address,
                                         .nbytes = mappings[last].address + mappings[last].nbytes - mappings[i].address,
                                         .kind = VGX_SIM_RESERVED};
  pthread_mutex_unlock(&lock);
  return hit;
}

/* The mappings that exactly cover a range are [*first, *after); false: they do not. */
static bool covered_locked(uint64_t address, uint64_t nbytes, size_t *first, size_t *after) {
  uint64_t at = address, end = address + nbytes;
  size_t i = bound_locked(address);
  for (*first = i; at < end && i < mapping_count && mappings[i].address == at; i++)
    at += mappings[i].nbytes;
  *after = i;
  return at == end;
}

static void free_physical(struct physical *p) {
  vgx_sim_arena_unreserve(&p->device->arena, p->address, VGX_SIM_PHYSICAL);
  free(p);
}

CUresult vgx_sim_cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                                     unsigned long long flags) {
  CUcontext ctx = vgx_sim_current();
  struct vgx_sim_device *device = ctx ? ctx->device : vgx_sim_device_at(0);
  (void)addr; /* a wish; the answer may be elsewhere */
  if (!ptr || !device || !is_granular(0, size) || flags || alignment & (alignment - 1) || alignment > GRANULE_NBYTES)
    return CUDA_ERROR_INVALID_VALUE;
  return vgx_sim_arena_reserve(&device->arena, size, VGX_SIM_RESERVED, ptr);
}

CUresult vgx_sim_cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  struct vgx_sim_device *device = vgx_sim_device_of(ptr);
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  if (!device || !is_granular(ptr, size))
    return result;
  pthread_mutex_lock(&lock);
  size_t i = bound_locked(ptr);
  bool mapped = i < mapping_count && mappings[i].address < ptr + size;
  if (!mapped && vgx_sim_arena_reserved(&device->arena, ptr, size) == ptr)
    result = vgx_sim_arena_unreserve(&device->arena, ptr, VGX_SIM_RESERVED);
  pthread_mutex_unlock(&lock);
  return result;
}

CUresult vgx_sim_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                             unsigned long long flags) {
  if (!handle || !prop || flags || prop->type != TYPE_PINNED || !is_granular(0, size))
    return CUDA_ERROR_INVALID_VALUE;
  if (prop->location.type != LOCATION_DEVICE || prop->requestedHandleTypes)
    return CUDA_ERROR_NOT_SUPPORTED;
  struct vgx_sim_device *device = vgx_sim_device_at(prop->location.id);
  if (!device)
    return CUDA_ERROR_INVALID_DEVICE;
  struct physical *made = calloc(1, sizeof *made);
  if (!made)
    return CUDA_ERROR_OUT_OF_MEMORY;
  *made = (struct physical){.device = device, .nbytes = size};
  CUresult result = vgx_sim_arena_reserve(&device->arena, size, VGX_SIM_PHYSICAL, &made->address);
  if (result != CUDA_SUCCESS) {
    free(made);
    return result;
  }
  *handle = (uintptr_t)made;
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuMemRelease(CUmemGenericAllocationHandle handle) {
  struct physical *p = (struct physical *)(uintptr_t)handle;
  if (!p)
    return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  p->released = true;
  bool last = p->mappings == 0;
  pthread_mutex_unlock(&lock);
  if (last)
    free_physical(p);
  return CUDA_SUCCESS;
}

static CUresult map_locked(uint64_t address, uint64_t nbytes, uint64_t offset, struct physical *p) {
  struct vgx_sim_device *device = vgx_sim_device_of(address);
  size_t i = bound_locked(address);
  uint64_t file_offset;
  int file = vgx_sim_arena_file(&p->device->arena, p->address, &file_offset);
  if (i < mapping_count && mappings[i].address < address + nbytes)
    return CUDA_ERROR_INVALID_VALUE; /* something is mapped there */
  if (!device || !vgx_sim_arena_reserved(&device->arena, address, nbytes))
    return CUDA_ERROR_INVALID_VALUE;
  if (mapping_count == mapping_room) {
    size_t room = mapping_room ? mapping_room * 2 : 64;
    void *grown = room <= MAPPINGS_MAX ? realloc(mappings, room * sizeof *mappings) : NULL;
    if (!grown)
      return CUDA_ERROR_OUT_OF_MEMORY;
    mappings = grown;
    mapping_room = room;
  }
  if (file < 0 || mmap((void *)address, nbytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, file,
                       (off_t)(file_offset + offset)) == MAP_FAILED)
    return CUDA_ERROR_OUT_OF_MEMORY;
  madvise((void *)address, nbytes, MADV_DONTDUMP);
  memmove(&mappings[i + 1], &mappings[i], (mapping_count - i) * sizeof *mappings);
  mappings[i] = (struct mapping){.address = address, .nbytes = nbytes, .physical = p};
  mapping_count++;
  p->mappings++;
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                          unsigned long long flags) {
  struct physical *p = (struct physical *)(uintptr_t)handle;
  if (!p || flags || !is_granular(ptr, size) || offset % GRANULE_NBYTES || offset > p->nbytes ||
      size > p->nbytes - offset)
    return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  CUresult result = map_locked(ptr, size, offset, p);
  pthread_mutex_unlock(&lock);
  return result;
}

CUresult vgx_sim_cuMemUnmap(CUdeviceptr ptr, size_t size) {
  struct vgx_sim_device *device = vgx_sim_device_of(ptr);
  CUcontext ctx = vgx_sim_current();
  size_t first, after;
  if (!device || !is_granular(ptr, size))
    return CUDA_ERROR_INVALID_VALUE;
  if (ctx)
    vgx_sim_wait_context(ctx); /* nothing that runs loses its memory */
  pthread_mutex_lock(&lock);
  CUresult result = covered_locked(ptr, size, &first, &after) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS && !vgx_sim_arena_idle(&device->arena, ptr, size))
    result = CUDA_ERROR_OUT_OF_MEMORY;
  if (result == CUDA_SUCCESS) {
    for (size_t i = first; i < after; i++) {
      struct physical *p = mappings[i].physical;
      if (--p->mappings == 0 && p->released)
        free_physical(p);
    }
    memmove(&mappings[first], &mappings[after], (mapping_count - after) * sizeof *mappings);
    mapping_count -= after - first;
  }
  pthread_mutex_unlock(&lock);
  return result;
}

static CUresult set_access_locked(uint64_t address, uint64_t nbytes, uint32_t access) {
  size_t first, after;
  int protection = access == ACCESS_READWRITE ? PROT_READ | PROT_WRITE : access == ACCESS_READ ? PROT_READ : PROT_NONE;
  if (!covered_locked(address, nbytes, &first, &after))
    return CUDA_ERROR_INVALID_VALUE;
  if (mprotect((void *)address, nbytes, protection) != 0)
    return CUDA_ERROR_OUT_OF_MEMORY;
  for (size_t i = first; i < after; i++)
    mappings[i].access = access;
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count) {
  if (!is_granular(ptr, size) || !desc || count == 0)
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; i++) {
    int flags = desc[i].flags;
    if (desc[i].location.type != LOCATION_DEVICE || (flags != 0 && flags != ACCESS_READ && flags != ACCESS_READWRITE))
      return CUDA_ERROR_INVALID_VALUE;
    if (!vgx_sim_device_at(desc[i].location.id))
      return CUDA_ERROR_INVALID_DEVICE;
  }
  pthread_mutex_lock(&lock);
  size_t at = bound_locked(ptr);
  CUresult result = at < mapping_count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
    bool own = mappings[at].physical->device == vgx_sim_device_at(desc[i].location.id);
    if (own)
      result = set_access_locked(ptr, size, (uint32_t)desc[i].flags);
    else if (desc[i].flags)
      result = CUDA_ERROR_NOT_SUPPORTED; /* peers */
  }
  pthread_mutex_unlock(&lock);
  return result;
}

CUresult vgx_sim_cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr) {
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  if (!flags || !location || location->type != LOCATION_DEVICE)
    return result;
  struct vgx_sim_device *device = vgx_sim_device_at(location->id);
  if (!device)
    return CUDA_ERROR_INVALID_DEVICE;
  pthread_mutex_lock(&lock);
  size_t i = bound_locked(ptr);
  if (i < mapping_count && mappings[i].address <= ptr) {
    *flags = mappings[i].physical->device == device ? mappings[i].access : 0;
    result = CUDA_SUCCESS;
  }
  pthread_mutex_unlock(&lock);
  return result;
}
