/* What the driver reserves for pools, of which it gives allocations out, and keeps for later ones: of a pool all that
 * is reserved counts, as the driver says it after each allocation. And how much more a session may allocate: what is
 * kept for later, also for graphs, is freed before anything is refused. */
#include "vgx_limit_pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vgw_device_memory.h"
#include "vgx_charge.h"

enum { RESERVED_NOW = 5, USED_NOW = 7 }; /* CU_MEMPOOL_ATTR_*_MEM_CURRENT */
enum { GRAPH_RESERVED_NOW = 2 };         /* CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT */
enum { RELEASE_THRESHOLD = 4 };          /* CU_MEMPOOL_ATTR_RELEASE_THRESHOLD */

#define real vgx_limit_real

const struct vgx_backend *vgx_limit_real;
static void (*reason)(CUresult result, bool ends, const char *text);
static atomic_flag told = ATOMIC_FLAG_INIT; /* the client, why an allocation is refused: once, as it may try again */

struct pool {
  struct pool *next;
  CUmemoryPool handle;
  CUdevice device;
  uint64_t nbytes; /* that count */
  bool destroyed;  /* by the client; the driver's goes when nothing of it is used */
};

/* Held while a pool is asked for memory, to see what it takes. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pool *pools;
static CUstream *freeing; /* streams in which memory of pools has been freed, since the driver was asked about them */
static size_t freeing_count, freeing_capacity;

/* Streams that threads wait for, without the lock; none of them ends meanwhile. */
struct waited {
  struct waited *next;
  CUstream stream;
};
static struct waited *waited_for;
static pthread_cond_t waited_less = PTHREAD_COND_INITIALIZER;
static CUmemoryPool defaults[VGW_SIMULATED_DEVICES_MAX],
    currents[VGW_SIMULATED_DEVICES_MAX];         /* NULL: not asked for; the default */
static uint64_t left[VGW_SIMULATED_DEVICES_MAX]; /* by graphs that are destroyed; counts */

CUdevice vgx_limit_device(void) {
  CUdevice device = -1;
  return real->current_device(&device) == CUDA_SUCCESS ? device : -1;
}

/* --- refusing --- */

CUresult vgx_limit_refuse(CUdevice device, uint64_t nbytes) {
  char text[200];
  int64_t room = vgx_charge_room(device);
  if (reason && !atomic_flag_test_and_set(&told)) {
    unsigned long long of_share = vgx_charge_limit() >> 20, left_over = room < 0 ? 0 : (unsigned long long)room;
    if (nbytes)
      snprintf(text, sizeof text,
               "%llu bytes are not allocated: the tenant's share has %llu MiB of this device, and %llu bytes are free",
               (unsigned long long)nbytes, of_share, left_over);
    else
      snprintf(text, sizeof text,
               "a context or a module is not made: the tenant's share has %llu MiB of this device, which are too few",
               of_share);
    reason(CUDA_ERROR_OUT_OF_MEMORY, false, text);
  }
  return CUDA_ERROR_OUT_OF_MEMORY;
}

static void set_reason(void (*to)(CUresult result, bool ends, const char *text)) {
  reason = to;
  if (vgx_limit_real->set_reason)
    vgx_limit_real->set_reason(to);
}

/* --- looking --- */

static struct pool *find_locked(CUmemoryPool handle) {
  struct pool *pool = pools;
  while (pool && pool->handle != handle)
    pool = pool->next;
  return pool;
}

static uint64_t ask(CUmemoryPool pool, int attribute, uint64_t otherwise) {
  uint64_t value = otherwise;
  return real->cuMemPoolGetAttribute(pool, attribute, &value) == CUDA_SUCCESS ? value : otherwise;
}

static void set_locked(struct pool *pool, uint64_t nbytes) {
  vgx_charge_change(pool->device, pool->nbytes, nbytes);
  pool->nbytes = nbytes;
}

static bool has_ended(CUstream stream) {
  int captures = 0; /* asking such a stream would end its capture */
  return real->cuStreamGetCaptureInfo_v2(stream, &captures, NULL, NULL, NULL, NULL) == CUDA_SUCCESS && !captures &&
         real->cuStreamQuery(stream) == CUDA_SUCCESS;
}

/* The driver gives freed memory back to a pool, and a pool's to the device, when it is waited for. The client's waits
 * do not get here, so do that for the streams that have come to their end. The lock is released meanwhile: another
 * thread may submit work to such a stream just before the wait begins. */
static void observe_locked(void) {
  for (size_t i = 0; i < freeing_count;) {
    struct waited wait = {waited_for, freeing[i]}, **at = &waited_for;
    if (!has_ended(wait.stream)) {
      i++;
      continue;
    }
    freeing[i] = freeing[--freeing_count];
    waited_for = &wait;
    pthread_mutex_unlock(&lock);
    real->cuStreamSynchronize(wait.stream);
    pthread_mutex_lock(&lock);
    while (*at != &wait)
      at = &(*at)->next;
    *at = wait.next;
    pthread_cond_broadcast(&waited_less);
  }
}

/* Let no thread wait for this stream; NULL: for any. */
static void await_waits_locked(CUstream stream) {
  for (const struct waited *each = waited_for; each;) {
    bool waits = !stream || each->stream == stream;
    if (waits)
      pthread_cond_wait(&waited_less, &lock);
    each = waits ? waited_for : each->next;
  }
}

static void look_at_pools_locked(CUdevice device) {
  for (struct pool **at = &pools; *at;) {
    struct pool *pool = *at;
    if (pool->device == device)
      set_locked(pool, ask(pool->handle, RESERVED_NOW, pool->nbytes));
    if (pool->device == device && pool->destroyed && !ask(pool->handle, USED_NOW, 1) &&
        real->cuMemPoolDestroy(pool->handle) == CUDA_SUCCESS) {
      set_locked(pool, 0);
      *at = pool->next;
      free(pool);
    } else {
      at = &pool->next;
    }
  }
}

static uint64_t reserved_for_graphs(CUdevice device) {
  uint64_t nbytes = 0;
  return real->cuDeviceGetGraphMemAttribute(device, GRAPH_RESERVED_NOW, &nbytes) == CUDA_SUCCESS ? nbytes : UINT64_MAX;
}

static void set_left_locked(CUdevice device, uint64_t most) {
  uint64_t reserved = most ? reserved_for_graphs(device) : 0, nbytes = most < reserved ? most : reserved;
  vgx_charge_change(device, left[device], nbytes);
  left[device] = nbytes;
}

void vgx_limit_graph_ends(CUdevice device, struct vgx_charge_entry *entry, bool destroyed) {
  pthread_mutex_lock(&lock);
  if (entry && destroyed)
    set_left_locked(device, left[device] + vgx_charge_entry_nbytes(entry));
  vgx_charge_end(entry, destroyed);
  pthread_mutex_unlock(&lock);
}

static void look_locked(CUdevice device) {
  observe_locked();
  look_at_pools_locked(device);
  set_left_locked(device, left[device]);
}

void vgx_limit_look(CUdevice device) {
  if (!vgx_charge_is_device(device))
    return;
  pthread_mutex_lock(&lock);
  look_locked(device);
  pthread_mutex_unlock(&lock);
}

uint64_t vgx_limit_present(CUdevice device) {
  if (!vgx_charge_is_device(device))
    return 0;
  uint64_t of_graphs;
  pthread_mutex_lock(&lock);
  look_at_pools_locked(device);
  uint64_t counted = vgx_charge_counted(device, &of_graphs);
  of_graphs += left[device];
  uint64_t reserved = of_graphs ? reserved_for_graphs(device) : 0;
  pthread_mutex_unlock(&lock);
  return counted - of_graphs + (of_graphs < reserved ? of_graphs : reserved);
}

/* Have the driver free what it keeps for later, as it does itself when a card's memory is short. */
static void trim_locked(CUdevice device) {
  observe_locked();
  for (struct pool *pool = pools; pool; pool = pool->next)
    if (pool->device == device)
      real->cuMemPoolTrimTo(pool->handle, 0);
  if (left[device])
    real->cuDeviceGraphMemTrim(device);
  look_locked(device);
}

static bool reserve_locked(CUdevice device, uint64_t nbytes) {
  if (!nbytes || vgx_charge_reserve(device, nbytes))
    return true;
  if (!vgx_charge_is_device(device) || nbytes > vgx_charge_limit())
    return false;
  trim_locked(device);
  return vgx_charge_reserve(device, nbytes);
}

CUresult vgx_limit_reserve(CUdevice device, uint64_t nbytes) {
  if (!nbytes || vgx_charge_reserve(device, nbytes))
    return CUDA_SUCCESS;
  pthread_mutex_lock(&lock);
  bool fits = reserve_locked(device, nbytes);
  pthread_mutex_unlock(&lock);
  return fits ? CUDA_SUCCESS : vgx_limit_refuse(device, nbytes);
}

/* --- pools --- */

static bool add_locked(CUmemoryPool handle, CUdevice device) {
  struct pool *pool = vgx_charge_is_device(device) ? malloc(sizeof *pool) : NULL;
  if (!pool)
    return false;
  *pool = (struct pool){pools, handle, device, 0, false};
  pools = pool;
  return true;
}

/* The devices' own pools, at the first use of any. */
static void add_defaults_locked(void) {
  for (CUdevice device = 0; vgx_charge_is_device(device); device++)
    if (!defaults[device] && (real->cuDeviceGetDefaultMemPool(&defaults[device], device) != CUDA_SUCCESS ||
                              !add_locked(defaults[device], device)))
      defaults[device] = NULL;
}

static CUresult create_pool(CUmemoryPool *pool, const CUmemPoolProps *props) {
  CUresult result = real->cuMemPoolCreate(pool, props);
  if (result != CUDA_SUCCESS)
    return result;
  pthread_mutex_lock(&lock);
  bool added = add_locked(*pool, props->location.id);
  pthread_mutex_unlock(&lock);
  if (added)
    return CUDA_SUCCESS;
  real->cuMemPoolDestroy(*pool);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

/* A pool of which something is used stays with the driver until that is freed: it could not be asked otherwise. */
static CUresult destroy_pool(CUmemoryPool handle) {
  pthread_mutex_lock(&lock);
  add_defaults_locked();
  struct pool *pool = find_locked(handle);
  CUresult result = CUDA_SUCCESS;
  if (!pool) {
    result = real->cuMemPoolDestroy(handle); /* imported */
  } else if (pool->handle == defaults[pool->device]) {
    result = CUDA_ERROR_INVALID_VALUE;
  } else {
    uint64_t keeps = 0;
    if (currents[pool->device] == handle &&
        real->cuDeviceSetMemPool(pool->device, defaults[pool->device]) == CUDA_SUCCESS)
      currents[pool->device] = NULL;
    pool->destroyed = true;
    real->cuMemPoolSetAttribute(handle, RELEASE_THRESHOLD, &keeps);
    real->cuMemPoolTrimTo(handle, 0);
    look_at_pools_locked(pool->device);
  }
  pthread_mutex_unlock(&lock);
  return result;
}

static CUresult trim_pool(CUmemoryPool handle, size_t keep) {
  pthread_mutex_lock(&lock);
  observe_locked();
  CUresult result = real->cuMemPoolTrimTo(handle, keep);
  struct pool *pool = find_locked(handle);
  if (pool)
    look_at_pools_locked(pool->device);
  pthread_mutex_unlock(&lock);
  return result;
}

static void add_freeing_locked(CUstream stream) {
  size_t i = 0;
  while (i < freeing_count && freeing[i] != stream)
    i++;
  if (i == freeing_count && i == freeing_capacity) {
    CUstream *grown = realloc(freeing, (2 * i + 16) * sizeof(CUstream));
    freeing = grown ? grown : freeing;
    freeing_capacity = grown ? 2 * i + 16 : i;
  }
  if (i == freeing_count && i < freeing_capacity)
    freeing[freeing_count++] = stream;
}

static CUresult free_async(CUdeviceptr dptr, CUstream stream) {
  CUresult result = real->cuMemFreeAsync(dptr, stream);
  pthread_mutex_lock(&lock);
  if (result == CUDA_SUCCESS)
    add_freeing_locked(stream);
  pthread_mutex_unlock(&lock);
  return result;
}

static CUresult destroy_stream(CUstream stream) {
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < freeing_count; i++)
    if (freeing[i] == stream)
      freeing[i] = freeing[--freeing_count];
  await_waits_locked(stream);
  pthread_mutex_unlock(&lock);
  return real->cuStreamDestroy_v2(stream);
}

/* Which streams are the context's is not known. Those of other contexts that are busy are asked about again once more
 * memory is freed in them. */
void vgx_limit_context_ends(void) {
  pthread_mutex_lock(&lock);
  observe_locked();
  freeing_count = 0;
  await_waits_locked(NULL);
  pthread_mutex_unlock(&lock);
}

static CUresult set_current_pool(CUdevice device, CUmemoryPool handle) {
  CUresult result = real->cuDeviceSetMemPool(device, handle);
  pthread_mutex_lock(&lock);
  if (result == CUDA_SUCCESS && vgx_charge_is_device(device))
    currents[device] = handle;
  pthread_mutex_unlock(&lock);
  return result;
}

static void sum_locked(uint64_t sums[VGW_SIMULATED_DEVICES_MAX]) {
  memset(sums, 0, VGW_SIMULATED_DEVICES_MAX * sizeof *sums);
  for (CUdevice device = 0; vgx_charge_is_device(device); device++)
    look_at_pools_locked(device);
  for (const struct pool *pool = pools; pool; pool = pool->next)
    sums[pool->device] += pool->nbytes;
}

/* How much of what pools have reserved they could give out. */
static uint64_t kept_locked(CUdevice device) {
  uint64_t sum = 0;
  for (const struct pool *pool = pools; pool; pool = pool->next) {
    uint64_t in_use = pool->device == device ? ask(pool->handle, USED_NOW, pool->nbytes) : pool->nbytes;
    sum += pool->nbytes > in_use ? pool->nbytes - in_use : 0;
  }
  return sum;
}

/* Allocate from `pool`; NULL: the current one of the stream's device, which is `device` as a rule. */
static CUresult allocate_locked(CUdevice device, CUdeviceptr *dptr, size_t nbytes, CUmemoryPool pool, CUstream stream) {
  uint64_t before[VGW_SIMULATED_DEVICES_MAX], after[VGW_SIMULATED_DEVICES_MAX];
  bool counted = vgx_charge_reserve(device, nbytes);
  if (!counted)
    observe_locked();
  sum_locked(before);
  if (!counted && nbytes > kept_locked(device)) {
    trim_locked(device);
    sum_locked(before);
    counted = vgx_charge_reserve(device, nbytes);
    if (!counted && nbytes > kept_locked(device))
      return vgx_limit_refuse(device, nbytes);
  }
  CUresult result =
      pool ? real->cuMemAllocFromPoolAsync(dptr, nbytes, pool, stream) : real->cuMemAllocAsync(dptr, nbytes, stream);
  sum_locked(after);
  if (counted)
    vgx_charge_change(device, nbytes, 0);
  for (CUdevice each = 0; vgx_charge_is_device(each) && result == CUDA_SUCCESS; each++)
    if (after[each] > before[each] && vgx_charge_room(each) < 0) {
      /* The pool has reserved more than it was asked for, or another session of the tenant was first. */
      if (real->cuMemFreeAsync(*dptr, stream) == CUDA_SUCCESS)
        add_freeing_locked(stream);
      trim_locked(each);
      result = vgx_limit_refuse(each, nbytes);
    }
  return result;
}

static CUresult allocate(CUdeviceptr *dptr, size_t nbytes, CUmemoryPool handle, CUstream stream) {
  CUdevice device = -1;
  CUresult result = real->current_device(&device);
  if (result != CUDA_SUCCESS)
    return result;
  pthread_mutex_lock(&lock);
  add_defaults_locked();
  const struct pool *pool = handle ? find_locked(handle) : NULL;
  if (handle && !pool) /* imported: it has no memory of its own to give out, and the driver refuses */
    result = real->cuMemAllocFromPoolAsync(dptr, nbytes, handle, stream);
  else
    result = allocate_locked(pool ? pool->device : device, dptr, nbytes, handle, stream);
  pthread_mutex_unlock(&lock);
  return result;
}

static CUresult alloc_async(CUdeviceptr *dptr, size_t nbytes, CUstream stream) {
  return allocate(dptr, nbytes, NULL, stream);
}

static CUresult alloc_from_pool(CUdeviceptr *dptr, size_t nbytes, CUmemoryPool pool, CUstream stream) {
  return allocate(dptr, nbytes, pool, stream);
}

/* --- waiting, after which the driver may have given memory of pools back --- */

static CUresult waited(CUresult result) {
  pthread_mutex_lock(&lock);
  for (CUdevice device = 0; pools && vgx_charge_is_device(device); device++)
    look_at_pools_locked(device);
  pthread_mutex_unlock(&lock);
  return result;
}

static CUresult synchronize_stream(CUstream stream) { return waited(real->cuStreamSynchronize(stream)); }

static CUresult synchronize_event(CUevent event) { return waited(real->cuEventSynchronize(event)); }

static CUresult synchronize_context(void) { return waited(real->cuCtxSynchronize()); }

void vgx_limit_pools(const struct vgx_backend *backend, struct vgx_backend *limited) {
  real = backend;
  limited->set_reason = set_reason;
#define REPLACE(function, with)                                                                                        \
  if (real->function)                                                                                                  \
    limited->function = with;
  REPLACE(cuStreamSynchronize, synchronize_stream)
  REPLACE(cuEventSynchronize, synchronize_event)
  REPLACE(cuCtxSynchronize, synchronize_context)
  /* A driver that does not tell what pools have reserved is not asked for them. */
  if (!real->cuMemPoolGetAttribute || !real->cuMemPoolSetAttribute || !real->cuMemPoolTrimTo ||
      !real->cuDeviceGetDefaultMemPool || !real->cuDeviceSetMemPool || !real->cuStreamGetCaptureInfo_v2) {
    limited->cuMemAllocAsync = NULL;
    limited->cuMemAllocFromPoolAsync = NULL;
    limited->cuMemPoolCreate = NULL;
  } else {
    REPLACE(cuMemAllocAsync, alloc_async)
    REPLACE(cuMemAllocFromPoolAsync, alloc_from_pool)
    REPLACE(cuMemFreeAsync, free_async)
    REPLACE(cuStreamDestroy_v2, destroy_stream)
    REPLACE(cuMemPoolCreate, create_pool)
    REPLACE(cuMemPoolDestroy, destroy_pool)
    REPLACE(cuMemPoolTrimTo, trim_pool)
    REPLACE(cuDeviceSetMemPool, set_current_pool)
  }
}
