/* Recording: enabling kinds of activity, flushing, and detaching. */
#include "vgs_cupti_api.h"
#include "vgs_cupti_buffer.h"
#include "vgs_cupti_callback.h"
#include "vgs_cupti_clock.h"
#include "vgs_cupti_device.h"
#include "vgs_cupti_layout.h"
#include "vgs_cupti_memory.h"
#include "vgs_cupti_observe.h"
#include "vgs_cupti_result.h"
#include "vgs_cupti_runtime.h"
#include "vgs_cupti_state.h"
#include "vgs_log.h"
#include <string.h>
#include <unistd.h>

static bool is_known(uint32_t kind) {
  switch (kind) {
  case VGS_KIND_MEMCPY:
  case VGS_KIND_MEMSET:
  case VGS_KIND_KERNEL:
  case VGS_KIND_CONCURRENT_KERNEL:
  case VGS_KIND_DRIVER:
  case VGS_KIND_RUNTIME:
  case VGS_KIND_OVERHEAD:
  case VGS_KIND_MEMCPY2:
  case VGS_KIND_SYNCHRONIZATION:
  case VGS_KIND_EXTERNAL_CORRELATION:
  case VGS_KIND_CUDA_EVENT:
  case VGS_KIND_GRAPH_TRACE:
  case VGS_KIND_MEMORY:
  case VGS_KIND_MEMORY2:
  case VGS_KIND_MEMORY_POOL:
    return true;
  default:
    return false;
  }
}

int vgs_cuptiActivityEnable(uint32_t kind) {
  static uint64_t named; /* atomic; a bit for each kind */
  if (!kind || kind >= VGS_KIND_COUNT)
    return CUPTI_ERROR_INVALID_KIND;
  if (!is_known(kind)) {
    if (!(__atomic_fetch_or(&named, (uint64_t)1 << kind, __ATOMIC_RELAXED) >> kind & 1))
      vgs_log(VGS_LOG_REASON, "CUPTI activity kind %u is not recorded: CUPTI_ERROR_NOT_SUPPORTED", kind);
    return CUPTI_ERROR_NOT_SUPPORTED;
  }
  if (!vgs_cupti_driver())
    return CUPTI_ERROR_NOT_INITIALIZED;
  if (kind == VGS_KIND_RUNTIME)
    vgs_cupti_explain_runtime();
  vgs_cupti_set_kind((enum vgs_cupti_kind)kind, true);
  return vgs_cupti_update();
}

int vgs_cuptiActivityDisable(uint32_t kind) {
  if (!kind || kind >= VGS_KIND_COUNT)
    return CUPTI_ERROR_INVALID_KIND;
  int result = CUPTI_SUCCESS;
  bool device = vgs_cupti_wants_device();
  bool was = vgs_cupti_wants((enum vgs_cupti_kind)kind);
  if (!was)
    return CUPTI_SUCCESS;
  if (device) /* records of work up to now are still delivered */
    result = vgs_cupti_drain();
  vgs_cupti_memory_end(kind);
  vgs_cupti_set_kind((enum vgs_cupti_kind)kind, false);
  if (device && !vgs_cupti_wants_device())
    vgs_cupti_stop_measuring();
  int updated = vgs_cupti_update();
  return result ? result : updated;
}

static void put_overhead(uint64_t start) {
  if (!vgs_cupti_wants(VGS_KIND_OVERHEAD))
    return;
  struct vgs_cupti_Overhead record = {.kind = VGS_KIND_OVERHEAD,
                                      .overheadKind = VGS_OVERHEAD_FLUSH,
                                      .objectKind = VGS_OBJECT_PROCESS,
                                      .start = start,
                                      .end = vgs_cupti_now()};
  uint32_t process = (uint32_t)getpid();
  memcpy(record.objectId, &process, sizeof process);
  vgs_cupti_put(&record, sizeof record);
}

static int flush(uint32_t flag) {
  if (flag & ~(uint32_t)VGS_FLUSH_FORCED)
    return CUPTI_ERROR_INVALID_PARAMETER;
  if (vgs_cupti_in_program())
    return CUPTI_ERROR_INVALID_OPERATION;
  uint64_t start = vgs_cupti_now();
  int drained = vgs_cupti_drain();
  put_overhead(start);
  int delivered = vgs_cupti_deliver();
  return drained ? drained : delivered;
}

int vgs_cuptiActivityFlushAll(uint32_t flag) { return flush(flag); }

/* Buffers belong to no context and no stream: all are flushed. */
int vgs_cuptiActivityFlush(CUcontext context, uint32_t streamId, uint32_t flag) {
  (void)context, (void)streamId;
  return flush(flag);
}

/* The library has no thread of its own, so only a period of 0 (no periodic flush) is supported. */
int vgs_cuptiActivityFlushPeriod(uint32_t time) {
  static bool named;
  return time ? vgs_cupti_unsupported("cuptiActivityFlushPeriod", &named) : CUPTI_SUCCESS;
}

/* The time a launch was queued and submitted is not measured. */
int vgs_cuptiActivityEnableLatencyTimestamps(uint8_t enable) {
  static bool named;
  return enable ? vgs_cupti_unsupported("cuptiActivityEnableLatencyTimestamps", &named) : CUPTI_SUCCESS;
}

/* Sizes of CUPTI's own buffers, which are not used here: values are only stored and returned. */
enum { ATTRIBUTES = 12, PER_THREAD = 9, ZEROED = 5, PINNED = 8 };
static uint64_t attributes[ATTRIBUTES]; /* atomic */

static size_t attribute_nbytes(uint32_t attr) {
  if (attr >= ATTRIBUTES)
    return 0;
  return attr == PER_THREAD || attr == ZEROED || attr == PINNED ? 1 : sizeof(size_t);
}

/* Whether `value` can hold the attribute. */
static int check_attribute(uint32_t attr, const size_t *value_nbytes, const void *value) {
  size_t nbytes = attribute_nbytes(attr);
  if (!value_nbytes || !value)
    return CUPTI_ERROR_INVALID_PARAMETER;
  if (!nbytes)
    return CUPTI_ERROR_NOT_SUPPORTED;
  return *value_nbytes < nbytes ? CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT : CUPTI_SUCCESS;
}

int vgs_cuptiActivitySetAttribute(uint32_t attr, size_t *valueSize, void *value) {
  uint64_t set = 0;
  int result = check_attribute(attr, valueSize, value);
  if (result)
    return result;
  memcpy(&set, value, attribute_nbytes(attr));
  __atomic_store_n(&attributes[attr], set, __ATOMIC_RELAXED);
  return CUPTI_SUCCESS;
}

int vgs_cuptiActivityGetAttribute(uint32_t attr, size_t *valueSize, void *value) {
  int result = check_attribute(attr, valueSize, value);
  if (result)
    return result;
  uint64_t set = __atomic_load_n(&attributes[attr], __ATOMIC_RELAXED);
  *valueSize = attribute_nbytes(attr);
  memcpy(value, &set, *valueSize);
  return CUPTI_SUCCESS;
}

/* Detach. Existing records are delivered to the program first; a call in progress leaves no record. */
int vgs_cuptiFinalize(void) {
  if (vgs_cupti_in_program())
    return CUPTI_ERROR_INVALID_OPERATION;
  int result = CUPTI_SUCCESS;
  if (vgs_cupti_wants_any()) {
    int drained = vgs_cupti_drain();
    if (vgs_cupti_wants(VGS_KIND_MEMORY))
      vgs_cupti_memory_end(VGS_KIND_MEMORY);
    result = vgs_cupti_deliver();
    result = drained ? drained : result;
  }
  vgs_cupti_clear_kinds();
  vgs_cupti_memory_end(VGS_KIND_MEMORY2);
  vgs_cupti_unsubscribe();
  vgs_cupti_stop_measuring();
  int updated = vgs_cupti_update();
  return result ? result : updated;
}
