/* libcuda's side of profiling: see vgs_profiling.h. libcupti assembles the contents of records. */
#include "vgs_profiling.h"
#include "vgs_api.h"
#include "vgs_capture.h"
#include "vgs_enter.h"
#include "vgs_graph_node.h"
#include "vgs_handle.h"
#include "vgs_kernel.h"
#include "vgs_objects.h"
#include "vgs_range.h"
#include "vgs_record_stream.h"
#include "vgs_session.h"
#include "vgs_stream.h"
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* Ids of streams as profilers know them: the legacy stream has the same id as in NVIDIA's driver. */
enum { LEGACY_STREAM_ID = 7, FIRST_STREAM_ID = 12 };

int vgs_profiling_state;
static const struct vgs_observer *observer;  /* atomic */
static const struct vgs_observer *otherwise; /* set once, before calls are observed */

void vgs_profiling_enter(struct vgs_api_call *call) {
  const struct vgs_observer *observing = __atomic_load_n(&observer, __ATOMIC_ACQUIRE);
  call->correlation = 0;
  if (observing)
    observing->enter(call);
}

void vgs_profiling_leave(struct vgs_api_call *call, int result) {
  const struct vgs_observer *observing = __atomic_load_n(&observer, __ATOMIC_ACQUIRE);
  if (observing && call->correlation)
    observing->leave(call, result);
  else
    vgs_thread_correlation = 0; /* the observer went away in the meantime */
}

static bool observe(const struct vgs_observer *wanted, const struct vgs_observer *instead_of) {
  wanted = wanted ? wanted : otherwise;
  instead_of = instead_of ? instead_of : otherwise;
  if (!__atomic_compare_exchange_n(&observer, &instead_of, wanted, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    return false;
  __atomic_store_n(&vgs_profiling_state, wanted != NULL, __ATOMIC_RELEASE);
  return true;
}

void vgs_profiling_otherwise(const struct vgs_observer *wanted) {
  const struct vgs_observer *none = NULL;
  otherwise = wanted;
  if (__atomic_compare_exchange_n(&observer, &none, wanted, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    __atomic_store_n(&vgs_profiling_state, true, __ATOMIC_RELEASE);
}

void vgs_profiling_correlate(uint64_t correlation) { vgs_thread_correlation = correlation; }

static CUresult ready(void) {
  CUresult result = vgs_life_check();
  if (!result)
    result = vgs_session_error();
  return !result && !vgs_stream_attached() ? CUDA_ERROR_NOT_INITIALIZED : result;
}

static CUresult measure(bool on, unsigned *what) {
  unsigned how = 0;
  CUresult result = ready();
  if (!result && !vgs_session_has_activity())
    result = CUDA_ERROR_NOT_SUPPORTED;
  if (result)
    return result;
  if (!on)
    return vgs_send_vgpuActivityStop();
  result = vgs_send_vgpuActivityStart(*what, &how);
  if (!result)
    *what = how;
  return result;
}

static CUresult read_clock(uint64_t *now_ns, uint64_t *dropped, uint64_t *waiting) {
  CUresult result = ready();
  return result ? result : vgs_send_vgpuActivityClock(now_ns, dropped, waiting);
}

static CUresult take(struct vgw_activity *activities, size_t capacity, size_t *count) {
  CUresult result = ready();
  if (result)
    return result;
  memset(activities, 0, capacity * sizeof *activities);
  result = vgs_send_vgpuActivityTake(capacity * sizeof *activities, activities);
  if (!result) /* every record has a correlation: an entry without one ends the list */
    for (*count = 0; *count < capacity && activities[*count].correlation; ++*count)
      continue;
  return result;
}

static CUresult name_of(uint32_t name, char text[VGW_ACTIVITY_NAME_NBYTES]) {
  CUresult result = ready();
  memset(text, 0, VGW_ACTIVITY_NAME_NBYTES);
  return result ? result : vgs_send_vgpuActivityName(VGW_ACTIVITY_NAME_NBYTES - 1, text, name);
}

static uint32_t epoch(void) { return vgs_session_epoch(); }

static CUcontext current(void) { return vgs_context_current() ? vgs_thread_top() : NULL; }

static bool context_facts(CUcontext handle, struct vgs_context_facts *facts) {
  const struct vgs_context *context = vgs_context_find(handle);
  if (!context)
    return false;
  *facts = (struct vgs_context_facts){.id = context->wire_id, .device = (uint32_t)context->device};
  return true;
}

static bool is_new(CUcontext handle) {
  struct vgs_context *context = vgs_context_find(handle);
  return context && __atomic_exchange_n(&context->profiled_id, context->wire_id, __ATOMIC_RELAXED) != context->wire_id;
}

static bool stream_id(CUcontext context, CUstream stream, bool per_thread, uint32_t *id) {
  (void)context;
  if (!stream && per_thread)
    stream = CU_STREAM_PER_THREAD;
  if (!stream || stream == CU_STREAM_LEGACY) {
    *id = LEGACY_STREAM_ID;
    return true;
  }
  uint32_t wire;
  struct vgs_stream *found;
  if (vgs_stream_find(stream, &wire, &found))
    return false;
  *id = wire ? FIRST_STREAM_ID + wire : LEGACY_STREAM_ID;
  return true;
}

static bool is_capturing(CUstream stream, bool per_thread) {
  uint32_t wire;
  struct vgs_stream *found = NULL;
  if (!stream && per_thread)
    stream = CU_STREAM_PER_THREAD;
  return !vgs_stream_find(stream, &wire, &found) && found && vgs_capture_status(found->capture);
}

static uint32_t object_id(const void *handle) { return (uint32_t)(uintptr_t)handle; }

static uint64_t node_number(CUgraphNode node) {
  uint64_t number;
  struct vgs_graph_node *found = vgs_graph_node_find(node);
  bool told =
      found && !ready() && vgs_session_has_activity() && !vgs_send_vgpuGraphNodeNumber(found->object.id, &number);
  return told ? number : object_id(node);
}

static CUgraphNode *nodes_of(CUgraph graph, size_t *count) {
  size_t capacity = 0;
  *count = 0;
  if (vgs_cuGraphGetNodes(graph, NULL, &capacity) || !capacity)
    return NULL;
  CUgraphNode *nodes = calloc(capacity, sizeof *nodes);
  if (nodes && !vgs_cuGraphGetNodes(graph, nodes, &capacity))
    *count = capacity;
  return nodes;
}

static uint32_t node_type(CUgraphNode node) {
  int type = 0;
  return vgs_cuGraphNodeGetType(node, &type) ? 0 : (uint32_t)type;
}

static const char *kernel_name(void *function) { return vgs_kernel_traced_name(function); }

static bool memory(uint64_t address, struct vgs_memory_facts *facts) {
  struct vgs_range range;
  if (!vgs_range_find(address, &range))
    return false;
  *facts = (struct vgs_memory_facts){.base = range.base,
                                     .nbytes = range.nbytes,
                                     .kind = range.kind == VGS_RANGE_MANAGED ? VGS_MEMORY_MANAGED
                                             : vgs_range_is_host(&range)     ? VGS_MEMORY_PINNED
                                                                             : VGS_MEMORY_DEVICE,
                                     .context = range.context_id,
                                     .device = (uint32_t)range.device,
                                     .of_pool = range.kind == VGS_RANGE_POOL};
  return true;
}

static CUmemoryPool current_pool(uint32_t device) {
  CUmemoryPool pool = NULL;
  return !ready() && !vgs_cuDeviceGetMemPool(&pool, (CUdevice)device) ? pool : NULL;
}

static bool pool_facts(CUmemoryPool pool, struct vgs_pool_facts *facts) {
  enum { THRESHOLD = 4, RESERVED = 5, USED = 7 }; /* CU_MEMPOOL_ATTR_* */
  const struct vgs_pool *found = vgs_object_find(VGW_KIND_MEMPOOL, pool);
  if (!found || ready())
    return false;
  *facts = (struct vgs_pool_facts){.device = (uint32_t)found->device, .imported = found->imported};
  return found->imported || (!vgs_cuMemPoolGetAttribute(pool, THRESHOLD, &facts->threshold) &&
                             !vgs_cuMemPoolGetAttribute(pool, RESERVED, &facts->reserved_nbytes) &&
                             !vgs_cuMemPoolGetAttribute(pool, USED, &facts->used_nbytes));
}

EXPORT const struct vgs_profiling *vgpuProfiling(uint32_t version) {
  static const struct vgs_profiling table = {.version = VGS_PROFILING_VERSION,
                                             .observed = &vgs_profiling_state,
                                             .enter = vgs_profiling_enter,
                                             .leave = vgs_profiling_leave,
                                             .observe = observe,
                                             .correlate = vgs_profiling_correlate,
                                             .measure = measure,
                                             .clock = read_clock,
                                             .take = take,
                                             .name = name_of,
                                             .epoch = epoch,
                                             .current = current,
                                             .context = context_facts,
                                             .is_new = is_new,
                                             .stream_id = stream_id,
                                             .is_capturing = is_capturing,
                                             .object_id = object_id,
                                             .node_number = node_number,
                                             .nodes = nodes_of,
                                             .node_type = node_type,
                                             .kernel_name = kernel_name,
                                             .memory = memory,
                                             .current_pool = current_pool,
                                             .pool = pool_facts};
  return version == VGS_PROFILING_VERSION ? &table : NULL;
}
