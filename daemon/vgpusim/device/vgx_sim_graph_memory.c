/* Memory that graphs allocate and free, by nodes of their own.
 *
 * The address stays reserved as long as a node or executable graph names it, and longer if a launch has allocated the
 * memory and nobody has freed it since. Whether the memory counts as allocated changes with the calls, in their order;
 * the device's used memory changes when the work runs. Locking: the runtime lock guards all of this; the arena's lock
 * is taken under it or alone. */
#include "vgx_sim_graph_memory.h"

#include <stdlib.h>
#include <string.h>

#include "vgx_sim_runtime.h"
#include "vgx_sim_watch_memory.h"

enum { LOCATION_DEVICE = 1, ALLOCATION_PINNED = 1, ACCESS_READWRITE = 3 };

enum { USED_CURRENT, USED_HIGH, RESERVED_CURRENT, RESERVED_HIGH, AMOUNTS }; /* CUgraphMem_attribute */

struct memory {
  uint32_t refs; /* references of operations; one belongs to the last launch, while `allocated` */
  struct vgx_sim_device *device;
  CUDA_MEM_ALLOC_NODE_PARAMS params; /* accessDescs is `descs` */
  CUmemAccessDesc descs[VGX_SIM_GRAPH_ACCESS_MAX];
  bool allocated; /* allocated by the launches that were called so far */
  bool planned;   /* allocated once the launch that is being checked has run */
  bool in_use;    /* allocated by the launches that have run so far */
  struct memory *next;
};

struct memory_op {
  struct vgx_sim_op op;
  struct memory *memory;
};

static struct memory *memories;
static uint64_t amounts[VGX_SIM_DEVICES_MAX][AMOUNTS];

static void add_locked(const struct memory *m, int current, bool more) {
  uint64_t *amount = &amounts[m->device->index][current], *high = amount + 1;
  *amount += more ? m->params.bytesize : -m->params.bytesize;
  *high = *amount > *high ? *amount : *high;
}

static struct memory *find_locked(CUdeviceptr address) {
  struct memory *m = memories;
  while (m && m->params.dptr != address)
    m = m->next;
  return m;
}

bool vgx_sim_graph_memory_is_idle(CUdeviceptr address) {
  vgx_sim_lock();
  const struct memory *m = find_locked(address);
  bool idle = m && !m->allocated;
  vgx_sim_unlock();
  return idle;
}

static void unref(struct memory *m) {
  vgx_sim_lock();
  bool last = --m->refs == 0;
  if (last) {
    struct memory **link = &memories;
    while (*link != m)
      link = &(*link)->next;
    *link = m->next;
    if (m->in_use) /* by a launch that was cancelled */
      add_locked(m, USED_CURRENT, false);
    add_locked(m, RESERVED_CURRENT, false);
  }
  vgx_sim_unlock();
  if (!last)
    return;
  vgx_sim_watch_freed(m->params.dptr);
  vgx_sim_arena_free(&m->device->arena, m->params.dptr, NULL);
  free(m);
}

static CUresult run(struct vgx_sim_op *op) {
  struct memory *m = ((struct memory_op *)op)->memory;
  bool use = op->kind == VGX_SIM_OP_MEM_ALLOC;
  vgx_sim_lock();
  if (m->in_use != use)
    add_locked(m, USED_CURRENT, use);
  m->in_use = use;
  vgx_sim_unlock();
  return CUDA_SUCCESS;
}

static void destroy(struct vgx_sim_op *op) {
  unref(((struct memory_op *)op)->memory);
  free(op);
}

static struct memory_op *op_create(struct memory *memory, enum vgx_sim_op_kind kind) {
  struct memory_op *op = calloc(1, sizeof *op);
  if (op)
    *op = (struct memory_op){.op = {.run = run, .destroy = destroy, .kind = kind}, .memory = memory};
  return op;
}

CUresult vgx_sim_graph_memory_create(struct vgx_sim_device *device, const CUDA_MEM_ALLOC_NODE_PARAMS *params,
                                     struct vgx_sim_op **op) {
  struct memory *m = calloc(1, sizeof *m);
  struct memory_op *made = m ? op_create(m, VGX_SIM_OP_MEM_ALLOC) : NULL;
  CUresult result = made ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  if (result == CUDA_SUCCESS) {
    m->refs = 1;
    m->device = device;
    m->params = *params;
    m->params.accessDescs = m->descs;
    if (params->accessDescCount)
      memcpy(m->descs, params->accessDescs, params->accessDescCount * sizeof *m->descs);
    result = vgx_sim_arena_allocate(&device->arena, params->bytesize, NULL, NULL, &m->params.dptr);
  }
  if (result != CUDA_SUCCESS) {
    free(made);
    free(m);
    return result;
  }
  vgx_sim_watch_allocated(m->params.dptr, m->params.bytesize);
  vgx_sim_lock();
  add_locked(m, RESERVED_CURRENT, true);
  m->next = memories;
  memories = m;
  vgx_sim_unlock();
  *op = &made->op;
  return CUDA_SUCCESS;
}

CUresult vgx_sim_graph_memory_reserve(struct vgx_sim_device *device, uint64_t nbytes, struct vgx_sim_op **op,
                                      CUdeviceptr *address) {
  CUmemAccessDesc access = {.location = {LOCATION_DEVICE, (int)device->index}, .flags = ACCESS_READWRITE};
  CUDA_MEM_ALLOC_NODE_PARAMS params = {
      .poolProps = {.allocType = ALLOCATION_PINNED, .location = access.location},
      .accessDescs = &access,
      .accessDescCount = 1,
      .bytesize = nbytes,
  };
  CUresult result = vgx_sim_graph_memory_create(device, &params, op);
  if (result == CUDA_SUCCESS)
    *address = vgx_sim_graph_memory_params(*op)->dptr;
  return result;
}

const CUDA_MEM_ALLOC_NODE_PARAMS *vgx_sim_graph_memory_params(const struct vgx_sim_op *op) {
  return &((const struct memory_op *)op)->memory->params;
}

CUresult vgx_sim_graph_memory_release(CUdeviceptr address, bool captured, struct vgx_sim_op **op) {
  *op = NULL; /* callers read it after a failure, too */
  struct memory_op *made = op_create(NULL, VGX_SIM_OP_MEM_FREE);
  if (!made)
    return CUDA_ERROR_OUT_OF_MEMORY;
  vgx_sim_lock();
  struct memory *m = find_locked(address);
  CUresult result = m && !captured && !m->allocated ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  if (m && result == CUDA_SUCCESS) {
    made->memory = m;
    m->refs += captured; /* else the operation takes over the launch's reference */
    m->allocated = m->allocated && captured;
  }
  vgx_sim_unlock();
  if (!made->memory) {
    free(made);
    made = NULL;
  }
  *op = made ? &made->op : NULL;
  return result;
}

static struct memory *memory_of(const struct vgx_sim_step *step) {
  bool is = step->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || step->type == CU_GRAPH_NODE_TYPE_MEM_FREE;
  return is ? ((struct memory_op *)step->work->op)->memory : NULL;
}

CUresult vgx_sim_graph_memory_launch_locked(const struct vgx_sim_plan *plan, bool again) {
  for (uint32_t i = 0; i < plan->count; i++) {
    struct memory *m = memory_of(&plan->steps[i]);
    if (m)
      m->planned = m->allocated && !(again && plan->steps[i].type == CU_GRAPH_NODE_TYPE_MEM_ALLOC);
  }
  for (uint32_t i = 0; i < plan->count; i++) {
    struct memory *m = memory_of(&plan->steps[i]);
    bool allocates = plan->steps[i].type == CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    if (m && m->planned == allocates)
      return CUDA_ERROR_INVALID_VALUE;
    if (m)
      m->planned = allocates;
  }
  for (uint32_t i = 0; i < plan->count; i++) {
    struct memory *m = memory_of(&plan->steps[i]);
    if (!m || m->planned == m->allocated)
      continue;
    m->allocated = m->planned;
    if (m->planned)
      m->refs++;
    else
      m->refs--; /* not the last reference: the plan has its own */
  }
  return CUDA_SUCCESS;
}

static CUresult check(CUdevice dev, int attr, const void *value) {
  if (attr < 0 || attr >= AMOUNTS || !value)
    return CUDA_ERROR_INVALID_VALUE;
  return vgx_sim_device_at(dev) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult vgx_sim_cuDeviceGetGraphMemAttribute(CUdevice device, int attr, void *value) {
  CUresult result = check(device, attr, value);
  vgx_sim_lock();
  if (result == CUDA_SUCCESS)
    *(uint64_t *)value = amounts[device][attr];
  vgx_sim_unlock();
  return result;
}

CUresult vgx_sim_cuDeviceSetGraphMemAttribute(CUdevice device, int attr, void *value) {
  CUresult result = check(device, attr, value);
  if (result == CUDA_SUCCESS && ((attr != USED_HIGH && attr != RESERVED_HIGH) || *(const uint64_t *)value))
    result = CUDA_ERROR_INVALID_VALUE; /* the high-water mark is reset to the current use */
  vgx_sim_lock();
  if (result == CUDA_SUCCESS)
    amounts[device][attr] = amounts[device][attr - 1];
  vgx_sim_unlock();
  return result;
}

/* No memory is cached beyond what nodes and executable graphs use. */
CUresult vgx_sim_cuDeviceGraphMemTrim(CUdevice device) {
  return vgx_sim_device_at(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
