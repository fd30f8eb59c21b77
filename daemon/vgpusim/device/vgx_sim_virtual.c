/* Virtual memory management. An address range is reserved in a device's arena; physical memory is a piece of the
 * device's file (or of one made for this, where the device's memory is private); mapping places memory at addresses,
 * any number of times. All sizes are multiples of the granule.
 *
 * Locking: `lock` guards mappings and physical memory's counts; the arena's lock is taken under it. */
#define _GNU_SOURCE
#include "vgx_sim_virtual.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vgx_backend.h"
#include "vgx_sim_arena_reserve.h"
#include "vgx_sim_queue.h"
#include "vgx_sim_runtime.h"

#ifndef F_GET_SEALS
#define F_ADD_SEALS 1033
#define F_GET_SEALS 1034
#define F_SEAL_SEAL 1
#define F_SEAL_SHRINK 2
#define F_SEAL_GROW 4
#endif

#define GRANULE_NBYTES (2ull << 20)
#define MAPPINGS_MAX 16384u /* each is a mapping of the process, of which Linux allows 65,530 */

enum { TYPE_PINNED = 1, LOCATION_DEVICE = 1, ACCESS_READ = 1, ACCESS_READWRITE = 3, POSIX_FILE_DESCRIPTOR = 1 };

/* Memory that cuMemCreate made in this or another process: freed when it is released and nothing maps it. */
struct physical {
  struct vgx_sim_device *device;
  uint64_t address, nbytes; /* its place in the arena, hidden from lookups; 0: it lies in `file` */
  int file;                 /* of its own, once it is shared: the file outlives its creator; else -1 */
  bool imported;            /* it counts in the process that created it */
  uint32_t mappings;
  bool released;
};

struct mapping {
  uint64_t address, nbytes;
  struct physical *physical;
  uint64_t offset;           /* in the physical memory */
  uint64_t readers, writers; /* a bit for each device */
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
  bool hit = i < mapping_count && mappings[i].address <= address && mappings[i].readers;
  while (hit && last + 1 < mapping_count && mappings[last + 1].readers &&
         mappings[last + 1].address == mappings[last].address + mappings[last].nbytes)
    last++; /* adjacent mappings count as one for copies */
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
  if (p->address)
    vgx_sim_arena_unreserve(&p->device->arena, p->address, VGX_SIM_PHYSICAL);
  else if (!p->imported)
    vgx_sim_arena_uncharge(&p->device->arena, p->nbytes);
  if (p->file >= 0)
    close(p->file);
  free(p);
}

CUresult vgx_sim_cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                                     unsigned long long flags) {
  CUcontext ctx = vgx_sim_current();
  struct vgx_sim_device *device = ctx ? ctx->device : vgx_sim_device_at(0);
  if (!ptr || !device || !is_granular(0, size) || flags || alignment & (alignment - 1))
    return CUDA_ERROR_INVALID_VALUE;
  return vgx_sim_arena_reserve(&device->arena, size, VGX_SIM_RESERVED, alignment, addr, ptr);
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
  if (prop->location.type != LOCATION_DEVICE || prop->requestedHandleTypes & ~POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_NOT_SUPPORTED;
  struct vgx_sim_device *device = vgx_sim_device_at(prop->location.id);
  if (!device)
    return CUDA_ERROR_INVALID_DEVICE;
  struct physical *made = calloc(1, sizeof *made);
  if (!made)
    return CUDA_ERROR_OUT_OF_MEMORY;
  *made = (struct physical){.device = device, .nbytes = size, .file = -1};
  CUresult result = vgx_sim_arena_reserve(&device->arena, size, VGX_SIM_PHYSICAL, 0, 0, &made->address);
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
  uint64_t file_offset = 0;
  int file = p->address ? vgx_sim_arena_file(&p->device->arena, p->address, &file_offset) : p->file;
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
  mappings[i] = (struct mapping){.address = address, .nbytes = nbytes, .physical = p, .offset = offset};
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

static int protection_of(uint64_t readers, uint64_t writers) {
  return writers ? PROT_READ | PROT_WRITE : readers ? PROT_READ : PROT_NONE;
}

/* The access of a device to the mappings of a range. A mapping of this process has one protection: the union of all
 * devices' access. */
static CUresult set_access_locked(size_t first, size_t after, uint64_t bit, int flags) {
  for (size_t i = first; i < after; i++) {
    struct mapping *m = &mappings[i];
    uint64_t readers = flags ? m->readers | bit : m->readers & ~bit;
    uint64_t writers = flags == ACCESS_READWRITE ? m->writers | bit : m->writers & ~bit;
    if (mprotect((void *)m->address, m->nbytes, protection_of(readers, writers)) != 0)
      return CUDA_ERROR_OUT_OF_MEMORY;
    m->readers = readers;
    m->writers = writers;
  }
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
  size_t first, after;
  CUresult result = covered_locked(ptr, size, &first, &after) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
    result = set_access_locked(first, after, 1ull << vgx_sim_device_at(desc[i].location.id)->index, desc[i].flags);
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
    uint64_t bit = 1ull << device->index;
    *flags = mappings[i].writers & bit ? ACCESS_READWRITE : mappings[i].readers & bit ? ACCESS_READ : 0;
    result = CUDA_SUCCESS;
  }
  pthread_mutex_unlock(&lock);
  return result;
}

/* --- shared with other processes --- */

enum { PAUSE_TIMEOUT_S = 20 };

struct shared { /* the contents of the CUipcMemHandle that stands for an allocation */
  uint64_t nbytes;
  uint32_t device, zero;
};
_Static_assert(sizeof(struct shared) <= sizeof(CUipcMemHandle), "the handle has room for it");

/* Move physical memory, with its contents, into a file of its own. Nothing uses it meanwhile. */
static bool move_locked(struct physical *p) {
  uint64_t offset;
  int old = vgx_sim_arena_file(&p->device->arena, p->address, &offset);
  int file = memfd_create("vgpu-physical", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  void *from = MAP_FAILED, *to = MAP_FAILED;
  if (old >= 0 && file >= 0 && ftruncate(file, (off_t)p->nbytes) == 0 &&
      fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
    from = mmap(NULL, p->nbytes, PROT_READ, MAP_SHARED, old, (off_t)offset);
    to = mmap(NULL, p->nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  bool moved = from != MAP_FAILED && to != MAP_FAILED && vgx_sim_arena_charge(&p->device->arena, p->nbytes);
  if (moved)
    memcpy(to, from, p->nbytes);
  for (size_t i = 0; i < mapping_count && moved; i++) {
    struct mapping *m = &mappings[i];
    if (m->physical == p && mmap((void *)m->address, m->nbytes, protection_of(m->readers, m->writers),
                                 MAP_SHARED | MAP_NORESERVE | MAP_FIXED, file, (off_t)m->offset) == MAP_FAILED)
      moved = false; /* the mappings before this one hold the same bytes */
  }
  if (from != MAP_FAILED)
    munmap(from, p->nbytes);
  if (to != MAP_FAILED)
    munmap(to, p->nbytes);
  if (!moved) {
    if (file >= 0)
      close(file);
    return false;
  }
  vgx_sim_arena_unreserve(&p->device->arena, p->address, VGX_SIM_PHYSICAL);
  p->address = 0;
  p->file = file;
  return true;
}

CUresult vgx_sim_share_export(struct vgx_ipc_object *object, CUmemGenericAllocationHandle handle) {
  struct physical *p = (struct physical *)(uintptr_t)handle;
  if (!p)
    return CUDA_ERROR_INVALID_VALUE;
  bool moves = p->file < 0;
  if (moves && !vgx_sim_pause(PAUSE_TIMEOUT_S)) {
    vgx_sim_log("simulator: memory cannot be exported while a kernel goes on and on");
    return CUDA_ERROR_NOT_READY;
  }
  pthread_mutex_lock(&lock);
  bool shared = p->file >= 0 || move_locked(p);
  object->fd = shared ? fcntl(p->file, F_DUPFD_CLOEXEC, 3) : -1;
  pthread_mutex_unlock(&lock);
  if (moves)
    vgx_sim_resume();
  if (object->fd < 0)
    return CUDA_ERROR_OUT_OF_MEMORY;
  struct shared content = {.nbytes = p->nbytes, .device = p->device->host_number};
  object->handle = (CUipcMemHandle){0};
  memcpy(&object->handle, &content, sizeof content);
  return CUDA_SUCCESS;
}

CUresult vgx_sim_share_open(CUmemGenericAllocationHandle *handle, CUmemAllocationProp *prop,
                            const struct vgx_ipc_object *object) {
  struct shared content;
  struct stat st;
  memcpy(&content, &object->handle, sizeof content);
  struct vgx_sim_device *device = vgx_sim_device_of_host(content.device);
  int seals = fcntl(object->fd, F_GET_SEALS);
  if (!device || !is_granular(0, content.nbytes) || seals < 0 || !(seals & F_SEAL_SHRINK) ||
      fstat(object->fd, &st) != 0 || (uint64_t)st.st_size != content.nbytes)
    return CUDA_ERROR_INVALID_VALUE;
  struct physical *made = calloc(1, sizeof *made);
  int file = made ? fcntl(object->fd, F_DUPFD_CLOEXEC, 3) : -1;
  if (file < 0) {
    free(made);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *made = (struct physical){.device = device, .nbytes = content.nbytes, .file = file, .imported = true};
  *prop = (CUmemAllocationProp){.type = TYPE_PINNED,
                                .requestedHandleTypes = POSIX_FILE_DESCRIPTOR,
                                .location = {.type = LOCATION_DEVICE, .id = (int)device->index}};
  *handle = (uintptr_t)made;
  return CUDA_SUCCESS;
}
