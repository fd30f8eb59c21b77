/* CUPTI_ACTIVITY_KIND_MEMORY2 has a record for each allocation and each release; CUPTI_ACTIVITY_KIND_MEMORY has one for
 * both, put when memory is freed or recording ends. Neither shows arrays, mappings of cuMemMap, module variables and
 * what the nodes of a graph allocate. */
#include "vgs_cupti_memory.h"
#include "vgs_cupti_buffer.h"
#include "vgs_cupti_layout.h"
#include "vgs_cupti_state.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIRST = 256, LIVE_MAX = 1 << 20, NO_STREAM = -1 };

/* An allocation. */
struct allocation {
  struct vgs_memory_facts facts;
  CUmemoryPool pool; /* NULL: none, or not known, as recording began later */
  const void *caller;
  uint64_t start; /* 0: before recording began */
};

/* Allocations made while they are recorded, by address; a hash table with open addressing. Under `lock`. */
static struct allocation *live;
static size_t live_capacity, live_count;

/* What a call in progress ends. */
struct ending {
  struct allocation allocation;
  CUmemoryPool pool;
  struct vgs_pool_facts pool_facts;
  bool known; /* `pool_facts` */
};

static bool wants_memory(void) { return vgs_cupti_wants(VGS_KIND_MEMORY) || vgs_cupti_wants(VGS_KIND_MEMORY2); }

/* --- live allocations --- */

static size_t home_of(uint64_t address) { return (size_t)((address >> 9) * 0x9e3779b97f4a7c15u >> 32) % live_capacity; }

/* Where the allocation at that address is, or belongs. */
static size_t place_locked(uint64_t address) {
  size_t at = home_of(address);
  while (live[at].facts.base && live[at].facts.base != address)
    at = (at + 1) % live_capacity;
  return at;
}

static bool grow_locked(void) {
  struct allocation *old = live;
  size_t capacity = live_capacity, wanted = capacity ? capacity * 2 : FIRST;
  struct allocation *grown = wanted <= LIVE_MAX ? calloc(wanted, sizeof *grown) : NULL;
  if (!grown)
    return false;
  live = grown;
  live_capacity = wanted;
  for (size_t i = 0; i < capacity; i++)
    if (old[i].facts.base)
      live[place_locked(old[i].facts.base)] = old[i];
  free(old);
  return true;
}

static void add_live(const struct allocation *made) {
  pthread_mutex_lock(&vgs_cupti_lock);
  if (live_count * 2 < live_capacity || grow_locked()) {
    size_t at = place_locked(made->facts.base);
    live_count += !live[at].facts.base;
    live[at] = *made;
  } else {
    vgs_cupti_count_dropped(1);
  }
  pthread_mutex_unlock(&vgs_cupti_lock);
}

/* An entry has been removed: move back the later entries that collided with it. */
static void close_gap_locked(size_t gap) {
  for (size_t at = (gap + 1) % live_capacity; live[at].facts.base; at = (at + 1) % live_capacity) {
    size_t home = home_of(live[at].facts.base);
    bool stays = gap <= at ? gap < home && home <= at : gap < home || home <= at;
    if (stays)
      continue;
    live[gap] = live[at];
    live[at].facts.base = 0;
    gap = at;
  }
}

static bool take_live(uint64_t address, struct allocation *taken) {
  pthread_mutex_lock(&vgs_cupti_lock);
  size_t at = live_capacity ? place_locked(address) : 0;
  bool found = live_capacity && live[at].facts.base;
  if (found) {
    *taken = live[at];
    live[at].facts.base = 0;
    live_count--;
    close_gap_locked(at);
  }
  pthread_mutex_unlock(&vgs_cupti_lock);
  return found;
}

/* --- records --- */

static uint32_t kind_of(const struct vgs_memory_facts *facts) {
  return facts->kind == VGS_MEMORY_MANAGED  ? VGS_MEMORY_KIND_MANAGED
         : facts->kind == VGS_MEMORY_PINNED ? VGS_MEMORY_KIND_PINNED
                                            : VGS_MEMORY_KIND_DEVICE;
}

static uint64_t address_of(const void *code) { return (uint64_t)(uintptr_t)code; }

/* memoryPoolConfig of CUpti_ActivityMemory4. */
static void fill_pool(uint8_t (*config)[40], CUmemoryPool pool) {
  struct {
    uint32_t type, gap;
    uint64_t address, threshold, size, used;
  } filled = {0};
  _Static_assert(sizeof filled == sizeof *config, "memoryPoolConfig");
  struct vgs_pool_facts facts;
  if (pool && vgs_cupti_driver()->pool(pool, &facts)) {
    filled.type = facts.imported ? VGS_POOL_IMPORTED : VGS_POOL_LOCAL;
    filled.address = address_of(pool);
    filled.threshold = facts.threshold;
    filled.size = facts.reserved_nbytes;
    filled.used = facts.used_nbytes;
  }
  memcpy(*config, &filled, sizeof filled);
}

static void put_operation(const struct vgs_api_call *call, const struct vgs_cupti_function *function,
                          const struct allocation *of, uint32_t operation) {
  if (!vgs_cupti_wants(VGS_KIND_MEMORY2))
    return;
  struct vgs_cupti_MemoryOperation record = {.kind = VGS_KIND_MEMORY2,
                                             .memoryOperationType = operation,
                                             .memoryKind = kind_of(&of->facts),
                                             .correlationId = call->correlation,
                                             .address = of->facts.base,
                                             .bytes = of->facts.nbytes,
                                             .timestamp = call->start,
                                             .PC = address_of(call->caller),
                                             .processId = (uint32_t)getpid(),
                                             .deviceId = of->facts.device,
                                             .contextId = of->facts.context,
                                             .streamId = (uint32_t)NO_STREAM,
                                             .isAsync = function->async};
  if (function->async)
    vgs_cupti_driver()->stream_id(NULL, call->stream, function->per_thread, &record.streamId);
  fill_pool(&record.memoryPoolConfig, of->pool);
  vgs_cupti_put(&record, sizeof record);
}

/* One record for an allocation and its release. `end` 0: it is not freed yet. */
static void put_whole(const struct allocation *of, uint64_t end, const void *freed_by) {
  if (!vgs_cupti_wants(VGS_KIND_MEMORY))
    return;
  struct vgs_cupti_Memory record = {.kind = VGS_KIND_MEMORY,
                                    .memoryKind = kind_of(&of->facts),
                                    .address = of->facts.base,
                                    .bytes = of->facts.nbytes,
                                    .start = of->start,
                                    .end = end,
                                    .allocPC = address_of(of->caller),
                                    .freePC = address_of(freed_by),
                                    .processId = (uint32_t)getpid(),
                                    .deviceId = of->facts.device,
                                    .contextId = of->facts.context};
  vgs_cupti_put(&record, sizeof record);
}

static void put_pool(const struct vgs_api_call *call, CUmemoryPool pool, const struct vgs_pool_facts *facts,
                     uint32_t operation, uint64_t kept_nbytes) {
  struct vgs_cupti_MemoryPool record = {.kind = VGS_KIND_MEMORY_POOL,
                                        .memoryPoolOperationType = operation,
                                        .memoryPoolType = facts->imported ? VGS_POOL_IMPORTED : VGS_POOL_LOCAL,
                                        .correlationId = call->correlation,
                                        .processId = (uint32_t)getpid(),
                                        .deviceId = facts->device,
                                        .minBytesToKeep = kept_nbytes,
                                        .address = address_of(pool),
                                        .size = facts->reserved_nbytes,
                                        .releaseThreshold = facts->threshold,
                                        .timestamp = call->start,
                                        .utilizedSize = facts->used_nbytes};
  vgs_cupti_put(&record, sizeof record);
}

/* --- calls --- */

/* A call's argument, whose type has as many bytes as a pointer; `place` counts from 0. */
static uint64_t argument(const struct vgs_api_call *call, size_t place) {
  uint64_t value;
  memcpy(&value, (const char *)call->params + place * sizeof value, sizeof value);
  return value;
}

/* What the call has stored where its first argument points to: an address or a pool. */
static uint64_t outcome(const struct vgs_api_call *call) {
  uint64_t value;
  memcpy(&value, *(const void *const *)call->params, sizeof value);
  return value;
}

static CUmemoryPool pool_of(uint64_t handle) {
  return (CUmemoryPool)(uintptr_t)handle;
} // NOLINT(performance-no-int-to-ptr)

static bool is_capturing(const struct vgs_api_call *call, const struct vgs_cupti_function *function) {
  return function->async && vgs_cupti_driver()->is_capturing(call->stream, function->per_thread);
}

void vgs_cupti_memory_before(struct vgs_api_call *call, const struct vgs_cupti_function *function) {
  bool frees = function && function->what == VGS_CALL_FREE && wants_memory() && !is_capturing(call, function);
  bool destroys = function && function->what == VGS_CALL_POOL_DESTROY && vgs_cupti_wants(VGS_KIND_MEMORY_POOL);
  struct ending ends = {0};
  if (frees) {
    uint64_t address = argument(call, 0);
    frees = vgs_cupti_driver()->memory(address, &ends.allocation.facts) && ends.allocation.facts.base == address;
    if (frees)
      take_live(address, &ends.allocation);
  } else if (destroys) {
    ends.pool = pool_of(argument(call, 0));
    destroys = vgs_cupti_driver()->pool(ends.pool, &ends.pool_facts);
  }
  call->kept = frees || destroys ? malloc(sizeof ends) : NULL;
  if (call->kept)
    memcpy(call->kept, &ends, sizeof ends);
}

static void allocated(const struct vgs_api_call *call, const struct vgs_cupti_function *function) {
  struct allocation made = {.caller = call->caller, .start = call->start};
  bool from_pool = strncmp(function->name, "cuMemAllocFromPool", strlen("cuMemAllocFromPool")) == 0;
  if (is_capturing(call, function) || !vgs_cupti_driver()->memory(outcome(call), &made.facts))
    return; /* in a capture the memory is the graph's, and does not exist yet */
  if (made.facts.of_pool)
    made.pool = from_pool ? pool_of(argument(call, 2)) : vgs_cupti_driver()->current_pool(made.facts.device);
  put_operation(call, function, &made, VGS_MEMORY_ALLOCATION);
  add_live(&made);
}

static void changed_pool(const struct vgs_api_call *call, const struct vgs_cupti_function *function) {
  struct vgs_pool_facts facts;
  bool created = function->what == VGS_CALL_POOL_CREATE;
  CUmemoryPool pool = pool_of(created ? outcome(call) : argument(call, 0));
  if (vgs_cupti_driver()->pool(pool, &facts))
    put_pool(call, pool, &facts, created ? VGS_POOL_CREATED : VGS_POOL_TRIMMED, created ? 0 : argument(call, 1));
}

void vgs_cupti_memory_after(struct vgs_api_call *call, const struct vgs_cupti_function *function, int result,
                            uint64_t end) {
  struct ending *ends = call->kept;
  enum vgs_cupti_class what = function ? function->what : VGS_CALL_OTHER;
  if (what == VGS_CALL_ALLOCATE && !result && wants_memory())
    allocated(call, function);
  if ((what == VGS_CALL_POOL_CREATE || what == VGS_CALL_POOL_TRIM) && !result && vgs_cupti_wants(VGS_KIND_MEMORY_POOL))
    changed_pool(call, function);
  if (!ends)
    return;
  if (result && ends->allocation.start)
    add_live(&ends->allocation);
  if (!result && what == VGS_CALL_POOL_DESTROY)
    put_pool(call, ends->pool, &ends->pool_facts, VGS_POOL_DESTROYED, 0);
  if (!result && what == VGS_CALL_FREE) {
    put_operation(call, function, &ends->allocation, VGS_MEMORY_RELEASE);
    put_whole(&ends->allocation, end, call->caller);
  }
  free(ends);
  call->kept = NULL;
}

void vgs_cupti_memory_end(uint32_t kind) {
  if (kind != VGS_KIND_MEMORY && kind != VGS_KIND_MEMORY2)
    return;
  bool other = vgs_cupti_wants(kind == VGS_KIND_MEMORY ? VGS_KIND_MEMORY2 : VGS_KIND_MEMORY);
  pthread_mutex_lock(&vgs_cupti_lock);
  size_t count = live_capacity;
  struct allocation *left = other && count ? malloc(count * sizeof *left) : live;
  if (other && left)
    memcpy(left, live, count * sizeof *left);
  if (!other)
    vgs_cupti_reset_memory();
  pthread_mutex_unlock(&vgs_cupti_lock);
  for (size_t i = 0; left && i < count; i++)
    if (kind == VGS_KIND_MEMORY && left[i].facts.base)
      put_whole(&left[i], 0, NULL);
  free(left);
}

void vgs_cupti_reset_memory(void) {
  live = NULL;
  live_capacity = live_count = 0;
}
