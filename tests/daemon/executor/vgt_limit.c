/* A driver that only counts, behind the bound of device memory (vgx_limit.c): linear memory, physical memory, pools
 * that reserve in blocks of 32 MiB and keep what is freed, and graphs whose nodes allocate. One device; calls that
 * change it take turns. */
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "vgw_ledger.h"
#include "vgx_backend.h"
#include "vgx_charge.h"
#include "vgx_limit.h"
#include "vgx_usage.h"

#define BLOCK (32ull << 20)
#define CONTEXT (300ull << 20)
enum { ALLOCATIONS = 4096, POOLS = 8 };

int vgt_busy;              /* streams have work to do */
atomic_int vgt_holds;      /* a wait for a stream does not end */
atomic_int vgt_waits;      /* how many have begun */
int vgt_fails;             /* the driver's functions that allocate answer OUT_OF_MEMORY */
uint64_t vgt_graph_nbytes; /* what the next graph's node allocates */
uint64_t vgt_graph_kept;   /* reserved for graphs */
int vgt_reuses;            /* another thread gets what is freed before the driver's call returns */
int vgt_silent = 1;        /* NVML does not list this process */
uint64_t vgt_own;          /* what the driver has for contexts, modules and the like */
uint64_t vgt_module = 0;   /* what the next module takes of it */
uint64_t vgt_taken;        /* what another session of the tenant takes while the driver allocates for a pool */
static struct vgw_ledger *ledger;
static struct vgx_backend driver;
static const struct vgx_backend *limited;
static struct {
  uint64_t nbytes, mapped;
  int pool, is_released;
} allocations[ALLOCATIONS];
static struct {
  uint64_t reserved, used, freed; /* of `used`, what is free once the driver is waited for */
  int is_live;
} pools[POOLS] = {{0, 0, 0, 1}};
static char contexts[2];

static CUresult add(uint64_t nbytes, int pool, uint64_t *key) {
  if (vgt_fails)
    return CUDA_ERROR_OUT_OF_MEMORY;
  for (uint64_t i = 1; i < ALLOCATIONS; i++)
    if (!allocations[i].nbytes) {
      allocations[i].nbytes = nbytes;
      allocations[i].pool = pool;
      *key = i;
      return CUDA_SUCCESS;
    }
  abort();
}

static CUresult mem_alloc(CUdeviceptr *dptr, size_t nbytes) { return add(nbytes, -1, dptr); }

static CUresult mem_pitch(CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height, unsigned int element) {
  (void)element;
  *pitch = (width + 1023) / 1024 * 1024; /* more than expected */
  return add(*pitch * height, -1, dptr);
}

static CUresult mem_free(CUdeviceptr dptr) {
  if (allocations[dptr].pool >= 0)
    pools[allocations[dptr].pool].used -= allocations[dptr].nbytes;
  memset(&allocations[dptr], 0, sizeof allocations[dptr]);
  CUdeviceptr again = 0;
  if (vgt_reuses && (limited->cuMemAlloc_v2(&again, 1 << 20) != CUDA_SUCCESS || again != dptr))
    abort();
  return CUDA_SUCCESS;
}

static CUresult free_async(CUdeviceptr dptr, CUstream stream) {
  (void)stream;
  int pool = allocations[dptr].pool;
  pools[pool].freed += allocations[dptr].nbytes;
  memset(&allocations[dptr], 0, sizeof allocations[dptr]);
  return CUDA_SUCCESS;
}

static int number_of(CUmemoryPool pool) { return (int)(uintptr_t)pool - 1; }

static CUresult from_pool(CUdeviceptr *dptr, size_t nbytes, CUmemoryPool pool, CUstream stream) {
  (void)stream;
  int number = number_of(pool);
  CUresult result = add(nbytes, number, dptr);
  if (result != CUDA_SUCCESS)
    return result;
  pools[number].used += nbytes;
  while (pools[number].reserved < pools[number].used - pools[number].freed)
    pools[number].reserved += BLOCK;
  ledger->used[1][0] += vgt_taken;
  return CUDA_SUCCESS;
}

static CUmemoryPool pool_of(int number) { return (CUmemoryPool)(uintptr_t)(number + 1); }

static CUresult alloc_async(CUdeviceptr *dptr, size_t nbytes, CUstream stream) {
  return from_pool(dptr, nbytes, pool_of(0), stream);
}

static CUresult default_pool(CUmemoryPool *pool, CUdevice device) {
  return (void)device, *pool = pool_of(0), CUDA_SUCCESS;
}

static CUresult pool_create(CUmemoryPool *pool, const CUmemPoolProps *props) {
  (void)props;
  for (int i = 1; i < POOLS; i++)
    if (!pools[i].is_live) {
      pools[i].is_live = 1;
      pools[i].reserved = pools[i].used = pools[i].freed = 0;
      *pool = pool_of(i);
      return CUDA_SUCCESS;
    }
  return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult pool_destroy(CUmemoryPool pool) { return pools[number_of(pool)].is_live = 0, CUDA_SUCCESS; }

static CUresult pool_trim(CUmemoryPool pool, size_t keep) {
  int number = number_of(pool);
  uint64_t least = pools[number].used > keep ? pools[number].used : keep;
  least = (least + BLOCK - 1) / BLOCK * BLOCK;
  if (least < pools[number].reserved)
    pools[number].reserved = least;
  return CUDA_SUCCESS;
}

static CUresult pool_attribute(CUmemoryPool pool, int attribute, void *value) {
  int number = number_of(pool);
  if (!pools[number].is_live)
    return CUDA_ERROR_INVALID_VALUE;
  *(uint64_t *)value = attribute == 5 ? pools[number].reserved : pools[number].used;
  return CUDA_SUCCESS;
}

static CUresult pool_set(CUmemoryPool pool, int attribute, void *value) {
  return (void)pool, (void)attribute, (void)value, CUDA_SUCCESS;
}

static CUresult mem_create(CUmemGenericAllocationHandle *handle, size_t nbytes, const CUmemAllocationProp *prop,
                           unsigned long long flags) {
  (void)prop, (void)flags;
  uint64_t key = 0;
  CUresult result = add(nbytes, -1, &key);
  *handle = result == CUDA_SUCCESS ? key : *handle;
  return result;
}

static CUresult mem_release(CUmemGenericAllocationHandle handle) {
  allocations[handle].nbytes = 0;
  return CUDA_SUCCESS;
}

static CUresult mem_map(CUdeviceptr at, size_t nbytes, size_t offset, CUmemGenericAllocationHandle handle,
                        unsigned long long flags) {
  return (void)at, (void)nbytes, (void)offset, (void)handle, (void)flags, CUDA_SUCCESS;
}

static CUresult mem_unmap(CUdeviceptr at, size_t nbytes) { return (void)at, (void)nbytes, CUDA_SUCCESS; }

static CUresult array_create(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *desc) {
  (void)desc;
  uint64_t key = 0;
  CUresult result = add(1, -1, &key);
  *array = (CUarray)(uintptr_t)key;
  return result;
}

static CUresult array_destroy(CUarray array) { return allocations[(uintptr_t)array].nbytes = 0, CUDA_SUCCESS; }

static CUresult graph_nodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
  (void)graph;
  if (nodes)
    nodes[0] = NULL;
  *count = vgt_graph_nbytes ? 1 : 0;
  return CUDA_SUCCESS;
}

static CUresult node_type(CUgraphNode node, int *type) { return (void)node, *type = 10, CUDA_SUCCESS; }

static CUresult node_params(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *params) {
  return (void)node, params->bytesize = vgt_graph_nbytes, CUDA_SUCCESS;
}

static CUresult instantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
  static uintptr_t last;
  (void)graph, (void)flags;
  if (vgt_fails)
    return CUDA_ERROR_OUT_OF_MEMORY;
  *exec = (CUgraphExec)(last += 64);
  return CUDA_SUCCESS;
}

static CUresult exec_destroy(CUgraphExec exec) { return (void)exec, CUDA_SUCCESS; }

static CUresult graph_attribute(CUdevice device, int attribute, void *value) {
  return (void)device, (void)attribute, *(uint64_t *)value = vgt_graph_kept, CUDA_SUCCESS;
}

static CUresult graph_trim(CUdevice device) { return (void)device, vgt_graph_kept = 0, CUDA_SUCCESS; }

static CUresult module_load(CUmodule *module, const void *image, uint64_t nbytes) {
  (void)image, (void)nbytes;
  vgt_own += vgt_module;
  return *module = (CUmodule)(uintptr_t)(vgt_module + 1), CUDA_SUCCESS;
}

static CUresult module_unload(CUmodule module) { return vgt_own -= (uintptr_t)module - 1, CUDA_SUCCESS; }

bool vgx_usage_read(CUdevice device, uint64_t *nbytes) {
  (void)device;
  *nbytes = vgt_own + vgt_graph_kept;
  for (int i = 1; i < ALLOCATIONS; i++)
    *nbytes += allocations[i].pool < 0 ? (allocations[i].nbytes + 511) / 512 * 512 : 0;
  for (int i = 0; i < POOLS; i++)
    *nbytes += pools[i].is_live ? pools[i].reserved : 0;
  return !vgt_silent;
}

static CUresult device_now(CUdevice *device) { return *device = 0, CUDA_SUCCESS; }

static CUresult set_current(CUcontext context) { return (void)context, CUDA_SUCCESS; }

static CUresult ctx_create(CUcontext *context, unsigned int flags, CUdevice device) {
  return (void)flags, (void)device, vgt_own += CONTEXT, *context = (CUcontext)&contexts[1], CUDA_SUCCESS;
}

static CUresult ctx_destroy(CUcontext context) { return (void)context, vgt_own -= CONTEXT, CUDA_SUCCESS; }

static CUresult attribute_of(void *value, int attribute, CUdeviceptr address) {
  return (void)value, (void)attribute, (void)address, CUDA_ERROR_INVALID_VALUE; /* freed with its context */
}

static size_t stack_nbytes;

static CUresult set_limit(int limit, size_t value) {
  if (limit == 0) {
    vgt_own += (value - stack_nbytes) << 10; /* as many threads */
    stack_nbytes = value;
  }
  return vgt_fails ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult get_limit(size_t *value, int limit) { return (void)limit, *value = stack_nbytes, CUDA_SUCCESS; }

static CUresult map_arrays(CUarrayMapInfo *infos, unsigned int count, CUstream stream) {
  return (void)infos, (void)count, (void)stream, CUDA_SUCCESS;
}

static CUresult stream_query(CUstream stream) { return (void)stream, vgt_busy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS; }

static CUresult stream_wait(CUstream stream) {
  (void)stream;
  atomic_fetch_add(&vgt_waits, 1);
  while (atomic_load(&vgt_holds)) /* work that another thread has submitted since the stream was asked about */
    sched_yield();
  for (int i = 0; i < POOLS; i++) {
    pools[i].used -= pools[i].freed;
    pools[i].freed = 0;
  }
  return CUDA_SUCCESS;
}

static CUresult stream_destroy(CUstream stream) { return (void)stream, CUDA_SUCCESS; }

static CUresult capture_info(CUstream stream, int *status, uint64_t *id, CUgraph *graph, const CUgraphNode **nodes,
                             size_t *count) {
  return (void)stream, (void)id, (void)graph, (void)nodes, (void)count, *status = 0, CUDA_SUCCESS;
}

static CUresult set_pool(CUdevice device, CUmemoryPool pool) { return (void)device, (void)pool, CUDA_SUCCESS; }

/* `has_pools`: a driver that says what pools have reserved. */
void vgt_begin(struct vgw_ledger *to, uint64_t limit_nbytes, int has_pools) {
  static const uint8_t devices[1] = {0};
  ledger = to;
  driver = (struct vgx_backend){
      .current_device = device_now,
      .cuArray3DCreate_v2 = array_create,
      .cuArrayDestroy = array_destroy,
      .cuCtxCreate_v2 = ctx_create,
      .cuCtxDestroy_v2 = ctx_destroy,
      .cuCtxSetCurrent = set_current,
      .cuCtxGetLimit = get_limit,
      .cuCtxSetLimit = set_limit,
      .cuDeviceGetDefaultMemPool = default_pool,
      .cuDeviceSetMemPool = set_pool,
      .cuDeviceGetGraphMemAttribute = graph_attribute,
      .cuDeviceGraphMemTrim = graph_trim,
      .cuGraphExecDestroy = exec_destroy,
      .cuGraphGetNodes = graph_nodes,
      .cuGraphInstantiateWithFlags = instantiate,
      .cuGraphMemAllocNodeGetParams = node_params,
      .cuGraphNodeGetType = node_type,
      .cuMemAllocAsync = alloc_async,
      .cuMemAllocFromPoolAsync = from_pool,
      .cuMemAllocPitch_v2 = mem_pitch,
      .cuMemAlloc_v2 = mem_alloc,
      .cuMemCreate = mem_create,
      .cuMemFreeAsync = free_async,
      .cuMemFree_v2 = mem_free,
      .cuMemMap = mem_map,
      .cuMemMapArrayAsync = map_arrays,
      .cuMemPoolCreate = pool_create,
      .cuMemPoolDestroy = pool_destroy,
      .cuMemPoolGetAttribute = has_pools ? pool_attribute : NULL,
      .cuMemPoolSetAttribute = pool_set,
      .cuMemPoolTrimTo = pool_trim,
      .cuMemRelease = mem_release,
      .cuMemUnmap = mem_unmap,
      .cuPointerGetAttribute = attribute_of,
      .cuStreamDestroy_v2 = stream_destroy,
      .cuStreamGetCaptureInfo_v2 = capture_info,
      .cuStreamQuery = stream_query,
      .cuStreamSynchronize = stream_wait,
      .load_module = module_load,
      .cuModuleUnload = module_unload,
  };
  limited = vgx_limit_backend(&driver, ledger, 0, limit_nbytes, devices, 1);
  limited->cuCtxSetCurrent((CUcontext)&contexts[0]);
}

int vgt_offers_pools(void) { return limited->cuMemAllocAsync && limited->cuMemAllocFromPoolAsync; }

int vgt_maps_arrays(void) { return limited->cuMemMapArrayAsync != NULL; }

int vgt_alloc(uint64_t nbytes, uint64_t *key) { return (int)limited->cuMemAlloc_v2(key, nbytes); }

int vgt_pitch(uint64_t width, uint64_t height, uint64_t *key) {
  size_t pitch;
  return (int)limited->cuMemAllocPitch_v2(key, &pitch, width, height, 4);
}

int vgt_free(uint64_t key) { return (int)limited->cuMemFree_v2(key); }

int vgt_stream_destroy(void) { return (int)limited->cuStreamDestroy_v2(NULL); }

int vgt_free_async(uint64_t key) { return (int)limited->cuMemFreeAsync(key, NULL); }

int vgt_pool(int *number) {
  CUmemPoolProps props = {0};
  CUmemoryPool pool = NULL;
  CUresult result = limited->cuMemPoolCreate(&pool, &props);
  *number = result == CUDA_SUCCESS ? number_of(pool) : -1;
  return (int)result;
}

int vgt_pool_alloc(int number, uint64_t nbytes, uint64_t *key) {
  return (int)(number ? limited->cuMemAllocFromPoolAsync(key, nbytes, pool_of(number), NULL)
                      : limited->cuMemAllocAsync(key, nbytes, NULL));
}

int vgt_pool_destroy(int number) { return (int)limited->cuMemPoolDestroy(pool_of(number)); }

int vgt_pool_trim(int number) { return (int)limited->cuMemPoolTrimTo(pool_of(number), 0); }

/* Of all pools that the driver has. */
uint64_t vgt_reserved(void) {
  uint64_t sum = 0;
  for (int i = 0; i < POOLS; i++)
    sum += pools[i].is_live ? pools[i].reserved : 0;
  return sum;
}

int vgt_create(uint64_t nbytes, uint64_t *key) {
  CUmemAllocationProp prop = {.location = {1, 0}};
  CUmemGenericAllocationHandle handle = 0;
  CUresult result = limited->cuMemCreate(&handle, nbytes, &prop, 0);
  *key = handle;
  return (int)result;
}

int vgt_release(uint64_t key) { return (int)limited->cuMemRelease(key); }

int vgt_map(uint64_t at, uint64_t nbytes, uint64_t key) { return (int)limited->cuMemMap(at, nbytes, 0, key, 0); }

int vgt_unmap(uint64_t at, uint64_t nbytes) { return (int)limited->cuMemUnmap(at, nbytes); }

int vgt_array(uint64_t width, uint64_t height, uint64_t depth, int format, unsigned channels, unsigned flags,
              uint64_t *key) {
  CUDA_ARRAY3D_DESCRIPTOR desc = {width, height, depth, format, channels, flags};
  CUarray array = NULL;
  CUresult result = limited->cuArray3DCreate_v2(&array, &desc);
  *key = (uintptr_t)array;
  return (int)result;
}

int vgt_array_destroy(uint64_t key) { return (int)limited->cuArrayDestroy((CUarray)(uintptr_t)key); }

int vgt_graph(uint64_t nbytes, uint64_t *exec) {
  CUgraphExec made = NULL;
  vgt_graph_nbytes = nbytes;
  CUresult result = limited->cuGraphInstantiateWithFlags(&made, NULL, 0);
  *exec = (uintptr_t)made;
  return (int)result;
}

int vgt_graph_destroy(uint64_t exec) { return (int)limited->cuGraphExecDestroy((CUgraphExec)(uintptr_t)exec); }

int vgt_graph_trim(void) { return (int)limited->cuDeviceGraphMemTrim(0); }

int vgt_module_load(uint64_t *module) {
  CUmodule made = NULL;
  CUresult result = limited->load_module(&made, NULL, 0);
  *module = (uintptr_t)made;
  return (int)result;
}

int vgt_module_unload(uint64_t module) { return (int)limited->cuModuleUnload((CUmodule)(uintptr_t)module); }

int vgt_stack(uint64_t nbytes) { return (int)limited->cuCtxSetLimit(0, nbytes); }

int vgt_heap(uint64_t nbytes) { return (int)limited->cuCtxSetLimit(2, nbytes); }

/* Enter a context of its own, or destroy it and enter the primary one. */
int vgt_own_context(int enter) {
  CUcontext context = (CUcontext)&contexts[1];
  CUresult result = enter ? limited->cuCtxCreate_v2(&context, 0, 0) : limited->cuCtxDestroy_v2(context);
  limited->cuCtxSetCurrent(enter ? context : (CUcontext)&contexts[0]);
  return (int)result;
}

/* Nanoseconds of a pair of calls, allocating and freeing, with the bound or without; of a pool if `pool`. */
double vgt_pair_ns(int bound, int pool, int turns) {
  const struct vgx_backend *b = bound ? limited : &driver;
  struct timespec begun, ended;
  uint64_t key = 0;
  clock_gettime(CLOCK_MONOTONIC, &begun);
  for (int i = 0; i < turns; i++) {
    if (pool) {
      b->cuMemAllocAsync(&key, 4096, NULL);
      b->cuMemFreeAsync(key, NULL);
    } else {
      b->cuMemAlloc_v2(&key, 4096);
      b->cuMemFree_v2(key);
    }
  }
  clock_gettime(CLOCK_MONOTONIC, &ended);
  return ((double)(ended.tv_sec - begun.tv_sec) * 1e9 + (double)(ended.tv_nsec - begun.tv_nsec)) / turns;
}
