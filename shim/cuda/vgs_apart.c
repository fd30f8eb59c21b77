#include "vgs_apart.h"
#include "vgs_apart_place.h"
#include "vgs_api.h"
#include "vgs_device.h"
#include "vgs_enter.h"
#include "vgs_log.h"
#include "vgs_objects.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A slab is a granule that holds allocations of 1 MiB or less, in units; their first unit is marked. */
enum { UNIT_NBYTES = 512, UNITS = 4096, WORD_BITS = 64, WORDS = UNITS / WORD_BITS };
enum { TYPE_PINNED = 1, LOCATION_DEVICE = 1, ACCESS_READWRITE = 3 };
#define SLAB_NBYTES ((uint64_t)UNIT_NBYTES * UNITS)
#define SMALL_NBYTES (SLAB_NBYTES / 2)
#define WINDOW_NBYTES (64ull << 30)

struct slab {
  uint64_t used[WORDS], begins[WORDS];
  unsigned left; /* free units */
};

/* Mapped memory: one allocation, or a slab. */
struct piece {
  uint64_t base, nbytes;
  CUdevice device;
  uint32_t context_id; /* wire id of the context that it dies with */
  struct vgs_allocation *physical;
  struct slab *slab;
};

/* Reserved addresses, which stay reserved. */
struct window {
  uint64_t base, nbytes;
  CUdevice device;
};

/* An allocation that is freed later. By a stream's order: the event is recorded behind its last use. Without one it was
 * freed beside a capture, when its context could not be waited for: a later free does so. */
struct freed {
  CUdeviceptr address;
  CUevent event;
  uint64_t number;
};

static struct {
  pthread_mutex_t lock;
  struct piece *pieces; /* in ascending order */
  size_t count, capacity;
  struct window *windows;
  size_t window_count;
  struct freed *freed;
  size_t freed_count, freed_capacity;
  uint64_t numbered;              /* how many have been freed later */
  uint64_t peers[VGS_DEVICE_MAX]; /* by device: a bit for each other device that may use its memory */
} apart = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool is_open; /* atomic */

bool vgs_apart_is_open(void) { return __atomic_load_n(&is_open, __ATOMIC_ACQUIRE); }

/* --- slabs --- */

static bool get(const uint64_t *bits, unsigned i) { return bits[i / WORD_BITS] >> i % WORD_BITS & 1; }
static void set(uint64_t *bits, unsigned i) { bits[i / WORD_BITS] |= 1ull << i % WORD_BITS; }
static void clear(uint64_t *bits, unsigned i) { bits[i / WORD_BITS] &= ~(1ull << i % WORD_BITS); }

/* The first of `count` units that are free and adjacent, which get used; UNITS: there are none. */
static unsigned reserve_units(struct slab *slab, unsigned count) {
  unsigned run = 0;
  for (unsigned i = 0; i < UNITS && slab->left >= count; i++) {
    run = get(slab->used, i) ? 0 : run + 1;
    if (run < count)
      continue;
    unsigned first = i + 1 - count;
    for (unsigned k = first; k <= i; k++)
      set(slab->used, k);
    set(slab->begins, first);
    slab->left -= count;
    return first;
  }
  return UNITS;
}

static void release_units(struct slab *slab, unsigned first) {
  unsigned i = first;
  clear(slab->begins, first);
  for (; i < UNITS && get(slab->used, i) && !get(slab->begins, i); i++)
    clear(slab->used, i);
  slab->left += i - first;
}

/* --- pieces --- */

/* The index of the first piece that ends behind an address. */
static size_t find_locked(uint64_t address) {
  size_t low = 0, high = apart.count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (apart.pieces[middle].base + apart.pieces[middle].nbytes > address)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/* The piece in which an allocation begins at an address, or NULL. */
static struct piece *holder_locked(uint64_t address) {
  size_t i = find_locked(address);
  struct piece *piece = i < apart.count && apart.pieces[i].base <= address ? &apart.pieces[i] : NULL;
  if (!piece || !piece->slab)
    return piece && piece->base == address ? piece : NULL;
  uint64_t offset = address - piece->base;
  return offset % UNIT_NBYTES == 0 && get(piece->slab->begins, (unsigned)(offset / UNIT_NBYTES)) ? piece : NULL;
}

static CUresult add_window_locked(CUdevice device, uint64_t nbytes, CUdeviceptr near) {
  struct window *grown = realloc(apart.windows, (apart.window_count + 1) * sizeof *grown);
  if (!grown)
    return CUDA_ERROR_OUT_OF_MEMORY;
  apart.windows = grown;
  struct window window = {.nbytes = nbytes > WINDOW_NBYTES ? nbytes : WINDOW_NBYTES, .device = device};
  CUresult result = vgs_apart_reserve(&window.base, window.nbytes, 0, near);
  if (result == CUDA_ERROR_OUT_OF_MEMORY && window.nbytes > nbytes)
    result = vgs_apart_reserve(&window.base, window.nbytes = nbytes, 0, near);
  if (result)
    return result;
  apart.windows[apart.window_count++] = window;
  __atomic_store_n(&is_open, true, __ATOMIC_RELEASE);
  return CUDA_SUCCESS;
}

/* A free range of the device's windows, and where its piece belongs. */
static bool find_gap_locked(CUdevice device, uint64_t nbytes, uint64_t *base, size_t *index) {
  for (size_t w = 0; w < apart.window_count; w++) {
    const struct window *window = &apart.windows[w];
    uint64_t at = window->base, end = window->base + window->nbytes;
    size_t i = find_locked(at);
    for (; i < apart.count && apart.pieces[i].base < end && apart.pieces[i].base - at < nbytes; i++)
      at = apart.pieces[i].base + apart.pieces[i].nbytes;
    *base = at;
    *index = i;
    if (window->device == device && end - at >= nbytes)
      return true;
  }
  return false;
}

static CUresult permit(const struct piece *piece) {
  CUmemAccessDesc descs[VGS_DEVICE_MAX];
  size_t count = 0;
  for (CUdevice device = 0; device < vgs_device_count(); device++)
    if (device == piece->device || apart.peers[piece->device] >> device & 1)
      descs[count++] = (CUmemAccessDesc){.location = {.type = LOCATION_DEVICE, .id = vgs_device_wire(device)},
                                         .flags = ACCESS_READWRITE};
  return vgs_send_cuMemSetAccess(piece->base, piece->nbytes, descs, count);
}

static void unmap(const struct piece *piece) {
  vgs_send_cuMemUnmap(piece->base, piece->nbytes);
  vgs_send_cuMemRelease(piece->physical->object.id);
  vgs_object_destroy(piece->physical);
  free(piece->slab);
}

static void remove_locked(struct piece *piece) {
  unmap(piece);
  apart.count--;
  memmove(piece, piece + 1, (size_t)(&apart.pieces[apart.count] - piece) * sizeof *piece);
}

static CUresult map_locked(struct piece *piece) {
  CUmemAllocationProp prop = {.type = TYPE_PINNED,
                              .location = {.type = LOCATION_DEVICE, .id = vgs_device_wire(piece->device)}};
  piece->physical = vgs_object_create(VGW_KIND_ALLOCATION, 0);
  if (!piece->physical)
    return CUDA_ERROR_OUT_OF_MEMORY;
  uint32_t id = piece->physical->object.id;
  CUresult result = vgs_send_cuMemCreate(id, piece->nbytes, &prop, 0);
  if (!result && (result = vgs_send_cuMemMap(piece->base, piece->nbytes, 0, id, 0)))
    vgs_send_cuMemRelease(id);
  else if (!result && (result = permit(piece))) {
    vgs_send_cuMemUnmap(piece->base, piece->nbytes);
    vgs_send_cuMemRelease(id);
  }
  if (result)
    vgs_object_destroy(piece->physical);
  return result;
}

/* Map a new piece of the current context. */
static CUresult create_locked(CUdevice device, uint64_t nbytes, bool is_slab, CUdeviceptr near, struct piece **made) {
  struct piece piece = {.nbytes = nbytes, .device = device, .context_id = vgs_context_entered->wire_id};
  size_t index;
  if (apart.count == apart.capacity) {
    size_t capacity = apart.capacity ? 2 * apart.capacity : 64;
    struct piece *grown = realloc(apart.pieces, capacity * sizeof *grown);
    if (!grown)
      return CUDA_ERROR_OUT_OF_MEMORY;
    apart.pieces = grown;
    apart.capacity = capacity;
  }
  if (!find_gap_locked(piece.device, nbytes, &piece.base, &index)) {
    CUresult result = add_window_locked(piece.device, nbytes, near);
    if (result)
      return result;
    if (!find_gap_locked(piece.device, nbytes, &piece.base, &index))
      return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (is_slab && !(piece.slab = calloc(1, sizeof *piece.slab)))
    return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = map_locked(&piece);
  if (result) {
    free(piece.slab);
    return result;
  }
  if (piece.slab)
    piece.slab->left = UNITS;
  memmove(&apart.pieces[index + 1], &apart.pieces[index], (apart.count - index) * sizeof piece);
  apart.pieces[index] = piece;
  apart.count++;
  *made = &apart.pieces[index];
  return CUDA_SUCCESS;
}

static CUresult alloc_small_locked(CUdeviceptr *address, CUdevice device, uint64_t nbytes, CUdeviceptr near) {
  unsigned count = (unsigned)((nbytes + UNIT_NBYTES - 1) / UNIT_NBYTES), first = UNITS;
  struct piece *piece = apart.pieces;
  for (size_t i = 0; i < apart.count && first == UNITS; i++) {
    piece = &apart.pieces[i];
    if (piece->slab && piece->context_id == vgs_context_entered->wire_id && piece->device == device)
      first = reserve_units(piece->slab, count);
  }
  if (first == UNITS) {
    CUresult result = create_locked(device, SLAB_NBYTES, true, near, &piece);
    if (result)
      return result;
    first = reserve_units(piece->slab, count);
  }
  *address = piece->base + (uint64_t)first * UNIT_NBYTES;
  return CUDA_SUCCESS;
}

/* An empty slab stays if it is its context's only one. */
static bool is_spare_locked(const struct piece *slab) {
  for (size_t i = 0; i < apart.count; i++) {
    const struct piece *other = &apart.pieces[i];
    if (other != slab && other->slab && other->slab->left == UNITS && other->context_id == slab->context_id)
      return true;
  }
  return false;
}

static void free_locked(CUdeviceptr address) {
  struct piece *piece = holder_locked(address);
  if (piece && piece->slab)
    release_units(piece->slab, (unsigned)((address - piece->base) / UNIT_NBYTES));
  if (piece && (!piece->slab || (piece->slab->left == UNITS && is_spare_locked(piece))))
    remove_locked(piece);
}

/* Free what streams are done with, and what was freed up to `number` in a context that was waited for since. */
static void free_done_locked(uint32_t context_id, uint64_t number) {
  size_t kept = 0;
  for (size_t i = 0; i < apart.freed_count; i++) {
    struct freed freed = apart.freed[i];
    const struct piece *piece = holder_locked(freed.address);
    bool done = freed.event ? vgs_cuEventQuery(freed.event) != CUDA_ERROR_NOT_READY
                            : piece && piece->context_id == context_id && freed.number <= number;
    if (!done) {
      apart.freed[kept++] = freed;
      continue;
    }
    if (freed.event)
      vgs_cuEventDestroy_v2(freed.event);
    free_locked(freed.address);
  }
  apart.freed_count = kept;
}

static bool free_later_locked(CUdeviceptr address, CUevent event) {
  if (apart.freed_count == apart.freed_capacity) {
    size_t capacity = apart.freed_capacity ? 2 * apart.freed_capacity : 64;
    struct freed *grown = realloc(apart.freed, capacity * sizeof *grown);
    if (!grown)
      return false;
    apart.freed = grown;
    apart.freed_capacity = capacity;
  }
  apart.freed[apart.freed_count++] = (struct freed){address, event, ++apart.numbered};
  return true;
}

/* --- the interface --- */

CUresult vgs_apart_alloc(CUdeviceptr *address, CUdevice device, uint64_t nbytes, CUdeviceptr near) {
  const struct vgs_device *known = vgs_device(device);
  uint64_t granule = known ? known->granularity_minimum : 0;
  if (!granule || SLAB_NBYTES % granule) /* the device has no such memory */
    return CUDA_ERROR_NOT_SUPPORTED;
  if (nbytes > UINT64_MAX - SLAB_NBYTES)
    return CUDA_ERROR_OUT_OF_MEMORY;
  struct piece *piece;
  pthread_mutex_lock(&apart.lock);
  free_done_locked(0, 0);
  CUresult result = nbytes <= SMALL_NBYTES
                        ? alloc_small_locked(address, device, nbytes, near)
                        : create_locked(device, (nbytes + SLAB_NBYTES - 1) & ~(SLAB_NBYTES - 1), false, near, &piece);
  if (!result && nbytes > SMALL_NBYTES)
    *address = piece->base;
  pthread_mutex_unlock(&apart.lock);
  if (result)
    vgs_log(VGS_LOG_INFO, "no memory could be made at an address that is free here: error %d", (int)result);
  return result;
}

bool vgs_apart_holds(CUdeviceptr address) {
  if (!vgs_apart_is_open())
    return false;
  pthread_mutex_lock(&apart.lock);
  bool held = holder_locked(address);
  pthread_mutex_unlock(&apart.lock);
  return held;
}

/* Beside a capture a driver refuses to wait for the context, and ends the capture; cuMemFree does neither. */
CUresult vgs_apart_free(CUdeviceptr address) {
  pthread_mutex_lock(&apart.lock);
  const struct piece *piece = holder_locked(address);
  uint32_t context_id = piece ? piece->context_id : 0, entered = vgs_thread_context_id;
  uint64_t number = apart.numbered;
  bool later = piece && vgs_diverted(VGS_CAPTURING) && free_later_locked(address, NULL);
  pthread_mutex_unlock(&apart.lock);
  if (later)
    return CUDA_SUCCESS;
  vgs_thread_context_id = context_id;
  CUresult result = context_id ? vgs_send_cuCtxSynchronize() : CUDA_ERROR_INVALID_VALUE;
  vgs_thread_context_id = entered;
  pthread_mutex_lock(&apart.lock);
  free_done_locked(context_id, number);
  free_locked(address);
  pthread_mutex_unlock(&apart.lock);
  return result;
}

CUresult vgs_apart_free_in_order(CUdeviceptr address, CUstream stream) {
  CUevent event;
  if (vgs_cuEventCreate(&event, CU_EVENT_DISABLE_TIMING))
    return vgs_apart_free(address);
  bool later = !vgs_cuEventRecord(event, stream);
  pthread_mutex_lock(&apart.lock);
  free_done_locked(0, 0);
  later = later && free_later_locked(address, event);
  pthread_mutex_unlock(&apart.lock);
  if (later)
    return CUDA_SUCCESS;
  vgs_cuEventDestroy_v2(event);
  return vgs_apart_free(address);
}

CUresult vgs_apart_open_to_peer(CUdevice owner) {
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&apart.lock);
  apart.peers[owner] |= 1ull << vgs_context_entered->device;
  for (size_t i = 0; i < apart.count && !result; i++)
    if (apart.pieces[i].device == owner)
      result = permit(&apart.pieces[i]);
  pthread_mutex_unlock(&apart.lock);
  return result;
}

void vgs_apart_end_context(uint32_t context_id) {
  if (!vgs_apart_is_open())
    return;
  pthread_mutex_lock(&apart.lock);
  size_t kept = 0;
  for (size_t i = 0; i < apart.freed_count; i++) { /* its events are gone, too */
    const struct piece *piece = holder_locked(apart.freed[i].address);
    if (piece && piece->context_id != context_id)
      apart.freed[kept++] = apart.freed[i];
  }
  apart.freed_count = kept;
  for (size_t i = apart.count; i-- > 0;)
    if (apart.pieces[i].context_id == context_id)
      remove_locked(&apart.pieces[i]);
  pthread_mutex_unlock(&apart.lock);
}

void vgs_apart_destroy_all(void) {
  pthread_mutex_lock(&apart.lock);
  for (size_t i = 0; i < apart.count; i++)
    free(apart.pieces[i].slab);
  free(apart.pieces);
  free(apart.windows);
  free(apart.freed);
  apart.pieces = NULL, apart.windows = NULL, apart.freed = NULL;
  apart.capacity = apart.freed_capacity = apart.count = apart.window_count = apart.freed_count = 0;
  memset(apart.peers, 0, sizeof apart.peers);
  __atomic_store_n(&is_open, false, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&apart.lock);
}
