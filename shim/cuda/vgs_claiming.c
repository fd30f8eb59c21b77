#include "vgs_claiming.h"
#include "vgs_apart.h"
#include "vgs_apart_place.h"
#include "vgs_api.h"
#include "vgs_claim.h"
#include "vgs_log.h"
#include "vgs_session.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_NBYTES = 512 };

/* Attempts before memory is made at an address of the client's choice. Where that is impossible: attempts without a
 * blocker, and the sizes of blockers: at the last attempt they occupy 28 GiB, or 16 with memory. Other tenants may need
 * that meanwhile, so together they take a quarter of what is free for this one at most. */
enum { TRIES_BEFORE_APART = 3, PLAIN_TRIES = 4, SHARE_OF_FREE = 4 };
static const uint64_t BLOCKER_NBYTES = 64 << 20, BLOCKER_NBYTES_MAX = 4ull << 30, MEMORY_NBYTES_MAX = 2ull << 30;

static void hold(struct vgs_claiming *c, CUdeviceptr address, uint64_t nbytes, bool there) {
  c->blockers[c->blocked++] = (struct vgs_claim_blocker){address, nbytes, there};
}

/* Reserve addresses in the worker, wherever they come to lie: there, if possible. Takes no memory. */
static bool reserve(struct vgs_claiming *c, CUdeviceptr hint, uint64_t nbytes) {
  CUdeviceptr got;
  if (c->blocked == VGS_CLAIM_BLOCKERS || vgs_send_cuMemAddressReserve(&got, nbytes, 0, hint, 0))
    return false;
  hold(c, got, nbytes, got == hint);
  return got == hint;
}

/* How much memory blockers may take; asked for once. */
static uint64_t memory_left(struct vgs_claiming *c) {
  size_t left = 0, total;
  if (!c->asked && !vgs_send_cuMemGetInfo_v2(&left, &total))
    c->memory_nbytes = left / SHARE_OF_FREE;
  c->asked = true;
  return c->memory_nbytes;
}

/* Occupy the addresses that are next to the rejected allocation, where the driver would put the next one. A driver that
 * reserves them elsewhere may do so for a reason that does not hold for allocations, so then memory is allocated, too;
 * half as much each time that a limit refuses it. Not in a stream's order: freeing it waits for the device. */
static void block(struct vgs_claiming *c) {
  uint64_t nbytes = BLOCKER_NBYTES << (c->tries - PLAIN_TRIES),
           last = c->last & ~(uint64_t)(VGS_CLAIM_CHUNK_NBYTES - 1);
  if (nbytes > BLOCKER_NBYTES_MAX)
    nbytes = BLOCKER_NBYTES_MAX;
  uint64_t above = (c->last + c->nbytes + VGS_CLAIM_CHUNK_NBYTES - 1) & ~(uint64_t)(VGS_CLAIM_CHUNK_NBYTES - 1);
  if (reserve(c, c->up ? above : last > nbytes ? last - nbytes : 0, nbytes) || c->is_ordered)
    return;
  CUdeviceptr got;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t left = memory_left(c), most = left < MEMORY_NBYTES_MAX ? left : MEMORY_NBYTES_MAX;
  for (nbytes = nbytes > most ? most & ~(uint64_t)(VGS_CLAIM_CHUNK_NBYTES - 1) : nbytes;
       nbytes >= VGS_CLAIM_CHUNK_NBYTES && result == CUDA_ERROR_OUT_OF_MEMORY && c->blocked < VGS_CLAIM_BLOCKERS;
       nbytes /= 2)
    if (!(result = vgs_send_cuMemAlloc_v2(&got, nbytes))) {
      hold(c, got, 0, false);
      c->memory_nbytes -= nbytes;
    }
}

/* Free blockers: all, those that do not lie where they were wanted, or those that have memory. Returns whether there
 * was one. */
enum which { ALL, ELSEWHERE, WITH_MEMORY };
static bool unblock(struct vgs_claiming *c, enum which which) {
  int kept = 0, count = c->blocked;
  for (int i = 0; i < count; i++) {
    const struct vgs_claim_blocker *b = &c->blockers[i];
    if (!b->nbytes)
      vgs_send_cuMemFree_v2(b->address);
    else if (which == WITH_MEMORY || (which == ELSEWHERE && b->there))
      c->blockers[kept++] = *b;
    else
      vgs_send_cuMemAddressFree(b->address, b->nbytes);
  }
  c->blocked = kept;
  return kept < count;
}

/* The line of /proc/self/maps that overlaps [begin, end), without its newline; empty if there is none. */
static void find_mapping(uint64_t begin, uint64_t end, char line[static LINE_NBYTES]) {
  FILE *maps = fopen("/proc/self/maps", "re");
  bool found = false;
  while (maps && !found && fgets(line, LINE_NBYTES, maps)) {
    char *after;
    uint64_t low = strtoull(line, &after, 16);
    found = *after == '-' && low < end && strtoull(after + 1, NULL, 16) > begin;
  }
  if (maps)
    fclose(maps);
  line[found ? strcspn(line, "\n") : 0] = 0;
}

/* Once: programs say "out of memory" for this, with memory free. */
static void explain(const struct vgs_claiming *c) {
  static bool explained;
  if (__atomic_exchange_n(&explained, true, __ATOMIC_RELAXED))
    return;
  char line[LINE_NBYTES], mapping[LINE_NBYTES];
  find_mapping(c->first, c->first + c->nbytes, line);
  vgs_log_escape(mapping, sizeof mapping, line);
  vgs_log(VGS_LOG_REASON,
          "CUDA_ERROR_OUT_OF_MEMORY, perhaps with memory free: the host's driver put %d allocations of %llu bytes at "
          "addresses that this process uses itself, first %#llx (in %s), last %#llx; making it at an address that is "
          "free here %s (%d). Start the program again, and report this line",
          c->tries, (unsigned long long)c->nbytes, (unsigned long long)c->first, *mapping ? mapping : "no mapping now",
          (unsigned long long)c->last, c->was_apart ? "failed" : "was not tried", (int)c->apart_result);
}

/* A pool hands out again at once what it is given back, and would do so at each later allocation. What is little stays
 * allocated, until memory is lacking. */
enum { KEPT_MAX = 64 };
static const uint64_t KEPT_NBYTES_MAX = 64 << 20;
static struct {
  pthread_mutex_t lock;
  uint16_t epoch; /* of the session that has them */
  unsigned count;
  uint64_t nbytes; /* of all together */
  struct {
    CUdeviceptr address;
    uint64_t nbytes;
  } items[KEPT_MAX];
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void keep(struct vgs_claiming *c) {
  uint64_t nbytes = (uint64_t)c->count * c->nbytes;
  pthread_mutex_lock(&kept.lock);
  if (kept.epoch != vgs_session_epoch())
    kept.nbytes = kept.count = 0;
  kept.epoch = vgs_session_epoch();
  if (kept.count + (unsigned)c->count <= KEPT_MAX && kept.nbytes + nbytes <= KEPT_NBYTES_MAX) {
    kept.nbytes += nbytes;
    while (c->count) {
      kept.items[kept.count].address = c->rejected[--c->count];
      kept.items[kept.count++].nbytes = c->nbytes;
    }
  }
  pthread_mutex_unlock(&kept.lock);
}

/* Have the caller free what was kept. Returns whether there is something. A graph's allocation frees in its capture,
 * which is for what graphs allocate. */
static bool release_kept(struct vgs_claiming *c) {
  bool frees = c->is_memory && (!c->is_ordered || c->in_pool);
  pthread_mutex_lock(&kept.lock);
  if (kept.epoch != vgs_session_epoch())
    kept.nbytes = kept.count = 0;
  while (frees && kept.count && c->count < VGS_CLAIM_TRIES) {
    kept.nbytes -= kept.items[--kept.count].nbytes;
    c->rejected[c->count++] = kept.items[kept.count].address;
  }
  pthread_mutex_unlock(&kept.lock);
  return c->count;
}

void vgs_claim_remove_kept(void) {
  pthread_mutex_lock(&kept.lock);
  kept.nbytes = kept.count = 0;
  pthread_mutex_unlock(&kept.lock);
}

/* Graphs allocate in the driver alone. What is freed in a stream's order goes back to a pool first. */
static bool may_go_apart(const struct vgs_claiming *c) {
  return VGS_CLAIMS && !c->was_apart && !c->is_imported && (!c->is_ordered || c->in_pool);
}

bool vgs_claim_apart(struct vgs_claiming *c, CUdeviceptr *address, CUresult *result) {
  if (!c->apart)
    return false;
  *result = !c->is_memory ? vgs_apart_reserve(address, c->nbytes, c->alignment, c->first)
                          : vgs_apart_alloc(address, c->device, c->nbytes, c->first);
  return true;
}

/* The rejected allocations are freed before memory is made apart: its address needs none of them, and they may be the
 * memory that is lacking. */
static bool go_apart(struct vgs_claiming *c) {
  c->apart = c->was_apart = c->releasing = true;
  return true;
}

bool vgs_claim_made(struct vgs_claiming *c, CUresult *result, CUdeviceptr address, uint64_t nbytes) {
  enum { REPORTS_MAX = 20 }; /* a program may make thousands of allocations */
  static unsigned reported;
  if (c->apart) {
    c->apart = false;
    c->apart_result = *result;
    if (*result) { /* as before, by attempts */
      *result = CUDA_SUCCESS;
      return true;
    }
  } else if (!*result && !vgs_claim(address, nbytes)) {
    c->up = c->tries && address > c->last;
    c->first = c->tries ? c->first : address;
    c->rejected[c->count++] = c->last = address;
    c->nbytes = nbytes;
    if (++c->tries >= (vgs_apart_is_open() ? 1 : TRIES_BEFORE_APART) && may_go_apart(c))
      return go_apart(c);
    if (c->tries < VGS_CLAIM_TRIES && !(c->in_pool && c->gave_back)) {
      if (c->tries >= PLAIN_TRIES)
        block(c);
      c->releasing = c->is_single;
      return true;
    }
    *result = CUDA_ERROR_OUT_OF_MEMORY;
  } else if (*result == CUDA_ERROR_OUT_OF_MEMORY && c->count && may_go_apart(c)) {
    return go_apart(c);
  } else if (*result == CUDA_ERROR_OUT_OF_MEMORY && (unblock(c, WITH_MEMORY) || release_kept(c) || c->count)) {
    /* What is held may be the memory that is lacking. Its addresses get reserved, unless a pool keeps them mapped. */
    c->releasing = c->gave_back = true;
    return true;
  }
  if (c->in_pool && !*result)
    keep(c);
  c->ended = c->releasing = true;
  c->failed = *result;
  if (c->tries && __atomic_fetch_add(&reported, 1, __ATOMIC_RELAXED) < REPORTS_MAX)
    vgs_log(VGS_LOG_INFO, "device memory at %#llx lies over memory of this process: %s", (unsigned long long)c->first,
            *result ? "none could be had elsewhere" : "allocated elsewhere");
  if (c->tries && *result == CUDA_ERROR_OUT_OF_MEMORY)
    explain(c);
  return false;
}

bool vgs_claim_rejected(struct vgs_claiming *c, CUdeviceptr *address) {
  if (c->released && !c->in_pool && !c->apart && !(c->ended && c->failed))
    reserve(c, c->released, (c->nbytes + VGS_CLAIM_CHUNK_NBYTES - 1) & ~(uint64_t)(VGS_CLAIM_CHUNK_NBYTES - 1));
  c->released = 0;
  c->releasing = c->releasing && c->count;
  if (c->releasing)
    *address = c->released = c->rejected[--c->count];
  else if (c->ended && c->blocked) /* those that stay keep later allocations from the program's memory */
    unblock(c, c->failed ? ALL : ELSEWHERE);
  return c->releasing;
}
