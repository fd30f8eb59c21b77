#include "vgs_stream.h"
#include "vgs_api.h"
#include "vgs_capture.h"
#include "vgs_device.h"
#include "vgs_enter.h"
#include "vgs_progress.h"
#include "vgs_session.h"
#include "vgs_wait.h"

/* This thread's own default stream, one per context; the one used last is cached, the others are found by context. */
enum { OWN_STREAMS = 8 };
static _Thread_local struct {
  uint32_t context_id;
  CUstream stream;
} own_streams[OWN_STREAMS];
static _Thread_local unsigned next_own;

static uint64_t last_unique_id = 2; /* atomic; 1 and 2 are the default streams' */

int vgs_stream_priority(int priority) {
  const struct vgs_device *device = vgs_device(vgs_context_entered->device);
  if (priority > device->priority_least)
    return device->priority_least;
  return priority < device->priority_greatest ? device->priority_greatest : priority;
}

struct vgs_stream *vgs_stream_create(uint32_t flags, int priority) {
  struct vgs_context *context = vgs_context_entered;
  struct vgs_stream *stream = vgs_object_create(VGW_KIND_STREAM, context->wire_id);
  if (!stream)
    return NULL;
  stream->flags = flags;
  stream->priority = vgs_stream_priority(priority);
  stream->device = context->device;
  stream->context = vgs_object_handle(context);
  stream->unique_id = __atomic_add_fetch(&last_unique_id, 1, __ATOMIC_RELAXED);
  return stream;
}

/* The thread's own default stream blocks with the legacy stream, as an ordinary stream does. It lives as long as its
 * context. */
static CUresult own_stream(struct vgs_stream **stream) {
  uint32_t context_id = vgs_context_entered->wire_id;
  for (unsigned i = 0; i < OWN_STREAMS; i++)
    if (own_streams[i].context_id == context_id && (*stream = vgs_object_find(VGW_KIND_STREAM, own_streams[i].stream)))
      return CUDA_SUCCESS;
  CUstream made;
  CUresult result = vgs_cuStreamCreateWithPriority(&made, CU_STREAM_DEFAULT, 0);
  if (!result) {
    *stream = vgs_object_find(VGW_KIND_STREAM, made);
    own_streams[next_own].context_id = context_id;
    own_streams[next_own].stream = made;
    next_own = (next_own + 1) % OWN_STREAMS;
  }
  return result;
}

CUstream vgs_stream_default(void) { return vgs_per_thread_default ? CU_STREAM_PER_THREAD : NULL; }

CUresult vgs_stream_id(CUstream handle, uint32_t *id, struct vgs_stream **object) {
  struct vgs_stream *stream = NULL;
  CUresult result = CUDA_SUCCESS;
  if (handle == CU_STREAM_PER_THREAD)
    result = own_stream(&stream);
  else if (handle && handle != CU_STREAM_LEGACY && !(stream = vgs_object_find(VGW_KIND_STREAM, handle)))
    result = CUDA_ERROR_INVALID_HANDLE;
  if (result)
    return result;
  *id = stream ? stream->object.id : 0;
  if (object)
    *object = stream;
  return CUDA_SUCCESS;
}

CUresult vgs_cuStreamCreate(CUstream *phStream, unsigned int Flags) {
  return vgs_cuStreamCreateWithPriority(phStream, Flags, 0);
}
