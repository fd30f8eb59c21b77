/* The program's functions are called with `delivering` held and no other lock. */
#include "vgs_cupti_buffer.h"
#include "vgs_cupti_api.h"
#include "vgs_cupti_layout.h"
#include "vgs_cupti_result.h"
#include "vgs_cupti_state.h"
#include <stdlib.h>
#include <string.h>

enum { DELIVER_NBYTES = 1 << 20, QUEUE_NBYTES_MAX = 64 << 20, ALIGNMENT = 8 };

static vgs_cupti_request request; /* atomic, as is the next */
static vgs_cupti_complete complete;

static struct {
  uint8_t *bytes;
  size_t used, capacity;
} queue;                 /* under `lock` */
static uint64_t dropped; /* atomic; since the program last queried it */

/* The program's buffer being filled; under `delivering`. */
static struct {
  uint8_t *bytes; /* NULL: there is none */
  size_t nbytes, used, count, most;
} buffer;
static bool has_buffer; /* atomic: buffer.bytes is not NULL */
static _Thread_local bool in_program;

bool vgs_cupti_in_program(void) { return in_program; }

void vgs_cupti_count_dropped(uint64_t count) { __atomic_fetch_add(&dropped, count, __ATOMIC_RELAXED); }

void vgs_cupti_put(const void *record, size_t nbytes) {
  pthread_mutex_lock(&vgs_cupti_lock);
  size_t wanted = queue.used + nbytes, capacity = queue.capacity ? queue.capacity : DELIVER_NBYTES;
  while (capacity < wanted)
    capacity *= 2;
  uint8_t *bytes = queue.bytes;
  if (capacity != queue.capacity)
    bytes = capacity <= QUEUE_NBYTES_MAX ? realloc(queue.bytes, capacity) : NULL;
  if (bytes) {
    queue.bytes = bytes;
    queue.capacity = capacity;
    memcpy(queue.bytes + queue.used, record, nbytes);
    queue.used = wanted;
  } else {
    vgs_cupti_count_dropped(1);
  }
  pthread_mutex_unlock(&vgs_cupti_lock);
}

static void request_buffer(void) {
  vgs_cupti_request ask = __atomic_load_n(&request, __ATOMIC_ACQUIRE);
  uint8_t *bytes = NULL;
  size_t nbytes = 0, most = 0;
  if (!ask)
    return;
  in_program = true;
  ask(&bytes, &nbytes, &most);
  in_program = false;
  if (!bytes || !nbytes ||
      (uintptr_t)bytes % ALIGNMENT) /* the program returned no buffer, or one that CUPTI would refuse */
    return;
  buffer.bytes = bytes;
  buffer.nbytes = nbytes;
  buffer.most = most;
  buffer.used = buffer.count = 0;
  __atomic_store_n(&has_buffer, true, __ATOMIC_RELAXED);
}

static void complete_buffer(void) {
  vgs_cupti_complete give = __atomic_load_n(&complete, __ATOMIC_ACQUIRE);
  uint8_t *bytes = buffer.bytes;
  buffer.bytes = NULL;
  __atomic_store_n(&has_buffer, false, __ATOMIC_RELAXED);
  if (!bytes || !give)
    return;
  in_program = true;
  give(NULL, 0, bytes, buffer.nbytes, buffer.used);
  in_program = false;
}

static size_t record_nbytes(uint32_t kind) {
  switch (kind) {
  case VGS_KIND_MEMCPY:
    return sizeof(struct vgs_cupti_Memcpy);
  case VGS_KIND_MEMSET:
    return sizeof(struct vgs_cupti_Memset);
  case VGS_KIND_KERNEL:
  case VGS_KIND_CONCURRENT_KERNEL:
    return sizeof(struct vgs_cupti_Kernel);
  case VGS_KIND_DRIVER:
  case VGS_KIND_RUNTIME:
    return sizeof(struct vgs_cupti_API);
  case VGS_KIND_OVERHEAD:
    return sizeof(struct vgs_cupti_Overhead);
  case VGS_KIND_MEMCPY2:
    return sizeof(struct vgs_cupti_MemcpyPtoP);
  case VGS_KIND_SYNCHRONIZATION:
    return sizeof(struct vgs_cupti_Synchronization);
  case VGS_KIND_EXTERNAL_CORRELATION:
    return sizeof(struct vgs_cupti_ExternalCorrelation);
  case VGS_KIND_CUDA_EVENT:
    return sizeof(struct vgs_cupti_CudaEvent);
  case VGS_KIND_GRAPH_TRACE:
    return sizeof(struct vgs_cupti_GraphTrace);
  case VGS_KIND_MEMORY:
    return sizeof(struct vgs_cupti_Memory);
  case VGS_KIND_MEMORY2:
    return sizeof(struct vgs_cupti_MemoryOperation);
  case VGS_KIND_MEMORY_POOL:
    return sizeof(struct vgs_cupti_MemoryPool);
  default:
    return 0;
  }
}

/* Space for a record in the program's buffers. NULL: the program gives no buffer, or one too small (*result is set). */
static uint8_t *place(size_t nbytes, int *result) {
  if (buffer.bytes && (nbytes > buffer.nbytes - buffer.used || (buffer.most && buffer.count == buffer.most)))
    complete_buffer();
  if (!buffer.bytes)
    request_buffer();
  if (!buffer.bytes)
    return NULL;
  if (nbytes > buffer.nbytes) {
    complete_buffer();
    *result = CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT;
    return NULL;
  }
  uint8_t *at = buffer.bytes + buffer.used;
  buffer.used += nbytes;
  buffer.count++;
  return at;
}

/* Under `delivering`. */
static int copy_queue(void) {
  pthread_mutex_lock(&vgs_cupti_lock);
  uint8_t *bytes = queue.bytes;
  size_t used = queue.used;
  memset(&queue, 0, sizeof queue);
  pthread_mutex_unlock(&vgs_cupti_lock);
  int result = CUPTI_SUCCESS;
  for (size_t at = 0; at < used;) {
    uint32_t kind;
    memcpy(&kind, bytes + at, sizeof kind);
    size_t nbytes = record_nbytes(kind);
    uint8_t *to = place(nbytes, &result);
    if (to)
      memcpy(to, bytes + at, nbytes);
    else
      vgs_cupti_count_dropped(1);
    at += nbytes;
  }
  free(bytes);
  return result;
}

int vgs_cupti_deliver(void) {
  if (in_program)
    return CUPTI_ERROR_INVALID_OPERATION;
  pthread_mutex_lock(&vgs_cupti_delivering);
  int result = copy_queue();
  complete_buffer();
  pthread_mutex_unlock(&vgs_cupti_delivering);
  return result;
}

void vgs_cupti_buffers_tend(void) {
  bool much = __atomic_load_n(&queue.used, __ATOMIC_RELAXED) >= DELIVER_NBYTES;
  if (in_program || !__atomic_load_n(&request, __ATOMIC_RELAXED) ||
      (!much && __atomic_load_n(&has_buffer, __ATOMIC_RELAXED)) || pthread_mutex_trylock(&vgs_cupti_delivering))
    return;
  if (!buffer.bytes)
    request_buffer();
  if (much)
    copy_queue();
  pthread_mutex_unlock(&vgs_cupti_delivering);
}

void vgs_cupti_reset_buffers(void) {
  memset(&queue, 0, sizeof queue);
  buffer.bytes = NULL;
  has_buffer = in_program = false;
  request = NULL;
  complete = NULL;
  dropped = 0;
}

int vgs_cuptiActivityRegisterCallbacks(vgs_cupti_request wanted, vgs_cupti_complete given) {
  if (!wanted || !given)
    return CUPTI_ERROR_INVALID_PARAMETER;
  __atomic_store_n(&complete, given, __ATOMIC_RELEASE);
  __atomic_store_n(&request, wanted, __ATOMIC_RELEASE);
  return CUPTI_SUCCESS;
}

int vgs_cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t streamId, size_t *count) {
  (void)context, (void)streamId; /* buffers belong to no context and no stream: the number is the process's */
  if (!count)
    return CUPTI_ERROR_INVALID_PARAMETER;
  *count = __atomic_exchange_n(&dropped, 0, __ATOMIC_RELAXED);
  return CUPTI_SUCCESS;
}

int vgs_cuptiActivityGetNextRecord(uint8_t *bytes, size_t valid, void **record) {
  uint32_t kind;
  if (!bytes || !record)
    return CUPTI_ERROR_INVALID_PARAMETER;
  uint8_t *at = *record ? *record : bytes;
  for (int step = *record ? 0 : 1; step < 2; step++) { /* the given record, then the next one */
    if (at < bytes || (size_t)(at - bytes) > valid)
      return CUPTI_ERROR_INVALID_PARAMETER;
    size_t left = valid - (size_t)(at - bytes);
    if (left < sizeof kind)
      return CUPTI_ERROR_MAX_LIMIT_REACHED;
    memcpy(&kind, at, sizeof kind);
    size_t nbytes = record_nbytes(kind);
    if (!nbytes)
      return CUPTI_ERROR_INVALID_KIND;
    if (nbytes > left)
      return CUPTI_ERROR_MAX_LIMIT_REACHED;
    if (step == 0)
      at += nbytes;
  }
  *record = at;
  return CUPTI_SUCCESS;
}
