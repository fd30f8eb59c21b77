#include "vgs_stream.h"
#include "vgs_api.h"
#include "vgs_capture.h"
#include "vgs_device.h"
#include "vgs_enter.h"
#include "vgs_order.h"
#include "vgs_ring_set.h"
#include "vgs_session.h"
#include "vgw_clock.h"
#include <sched.h>

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

CUresult vgs_stream_find(CUstream handle, uint32_t *id, struct vgs_stream **object) {
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

CUresult vgs_stream_id(CUstream handle, uint32_t *id, struct vgs_stream **object) {
  CUresult result = vgs_stream_find(handle, id, object);
  return result || *id || !vgs_diverted(VGS_CAPTURING) ? result : vgs_capture_check_legacy();
}

CUresult vgs_cuStreamCreate(CUstream *phStream, unsigned int Flags) {
  return vgs_cuStreamCreateWithPriority(phStream, Flags, 0);
}

/* --- waiting --- */

/* The thread's last flag: a wait for its stream needs no other one as long as it is the last call there. Not of the
 * legacy stream, which follows others' work. */
static _Thread_local struct {
  struct vgs_area *area; /* NULL: none */
  unsigned slot;
  uint16_t epoch; /* of the session */
  uint32_t stream, value;
  uint64_t entry; /* of the stream */
} last_flag;

CUresult vgs_wait_push_flag(struct vgs_area *area, unsigned slot, uint32_t stream) {
  uint32_t value = area->values[slot] + 1;
  area->values[slot] = value ? value : 1;
  area->streams[slot] = stream;
  CUresult result = vgs_send_vgpuStreamFlag((uintptr_t)vgs_area_flag(area, slot), area->values[slot], stream, false);
  uint64_t entry;
  bool last = !result && stream && vgs_order_is_last(stream, &entry);
  last_flag.area = last ? area : NULL;
  if (last) {
    last_flag.slot = slot;
    last_flag.epoch = vgs_session_epoch();
    last_flag.stream = stream;
    last_flag.value = area->values[slot];
    last_flag.entry = entry;
  }
  return result;
}

bool vgs_wait_is_set(struct vgs_area *area, unsigned slot) {
  /* The device writes the flag after all earlier work of the stream. */
  return vgs_area_is_set(area, slot, area->values[slot]);
}

/* NVIDIA's driver spins until the work is done if there are enough processors; so does this, for some time: a wakeup
 * costs some 30 us. */
bool vgs_wait_spin(struct vgs_area *area, unsigned slot) {
  uint64_t spin_ns = vgs_ring_spin_ns(), start = spin_ns ? vgw_now_ns() : 0;
  if (vgs_wait_is_set(area, slot) || !spin_ns)
    return vgs_wait_is_set(area, slot);
  uint64_t until = start + spin_ns + vgs_ring_spin_begin();
  bool set = false;
  for (unsigned turns = 1; !set && (turns % 64 || vgw_now_ns() < until); turns++) {
    __builtin_ia32_pause();
    set = vgs_wait_is_set(area, slot);
    if (!set && turns % 64 == 0 && turns >= VGS_RING_YIELD_TURNS)
      sched_yield();
  }
  vgs_ring_spin_end();
  return set;
}

/* Ask the worker. Afterwards all earlier work of the stream is done, if other threads' calls were ordered before this
 * one. */
static CUresult ask(uint32_t stream, uint64_t entry) {
  CUresult result = vgs_send_cuStreamSynchronize(stream);
  if (!result)
    vgs_touch_set_done(stream, entry);
  return result;
}

static bool can_settle(uint32_t stream) { return stream || !vgs_progress_is_unknown(); }

CUresult vgs_wait_stream_with(struct vgs_area *area, uint32_t stream) {
  uint64_t entry = vgs_touch_entry(VGW_KIND_STREAM, stream);
  if (!area || !vgs_ring_spin_ns() ||
      vgs_diverted(VGS_CAPTURING)) /* a flag in the legacy stream would disturb captures */
    return ask(stream, can_settle(stream) ? entry : 0);
  CUresult result = vgs_wait_push_flag(area, 0, stream);
  bool last = vgs_order_is_last(stream, &entry);
  if (!last || !can_settle(stream))
    entry = 0;
  if (result)
    return result;
  if (!vgs_wait_spin(area, 0) || vgs_ring_notice())
    return ask(stream, entry);
  vgs_touch_set_done(stream, entry);
  vgs_order_drained();
  return CUDA_SUCCESS;
}

/* Wait for the thread's last flag, if that is the last call in the stream. *waited: it is. */
static CUresult wait_last_flag(uint32_t stream, bool *waited) {
  struct vgs_area *area = last_flag.stream == stream && last_flag.epoch == vgs_session_epoch() ? last_flag.area : NULL;
  uint64_t entry;
  *waited = false;
  if (!area || vgs_touch_entry(VGW_KIND_STREAM, stream) != last_flag.entry || vgs_diverted(VGS_CAPTURING) ||
      !vgs_area_acquire_again(area))
    return CUDA_SUCCESS;
  last_flag.area = NULL;
  bool same = area->values[last_flag.slot] == last_flag.value, set = same && vgs_wait_spin(area, last_flag.slot);
  vgs_area_release(area);
  if (!same)
    return CUDA_SUCCESS;
  *waited = true;
  if (!set || vgs_ring_notice())
    return ask(stream, last_flag.entry);
  bool last = vgs_order_is_last(stream, &entry) && entry == last_flag.entry;
  vgs_touch_set_done(stream, last_flag.entry);
  if (last)
    vgs_order_drained();
  return CUDA_SUCCESS;
}

bool vgs_wait_stream_is_done(uint32_t stream) {
  struct vgs_progress_marks marks;
  uint32_t only;
  if (!vgs_order_knows())
    return false;
  uint64_t entry = vgs_touch_entry(VGW_KIND_STREAM, stream);
  struct vgs_touch last = vgs_touch_of(entry);
  bool done = vgs_touch_is_done(stream, entry) ||
              /* a wait for the context has shown it */
              (entry && !last.mixed && vgs_progress_is_done(last.ring, last.position));
  if (stream) /* the legacy stream waits for the others, too */
    return done;
  enum vgs_progress state = vgs_progress_query(vgs_context_entered->wire_id, &marks, &only);
  return state == VGS_PROGRESS_IDLE || (done && state == VGS_PROGRESS_ONE && only == 0);
}

void vgs_wait_set_done(uint32_t stream, uint64_t entry) {
  if (can_settle(stream))
    vgs_touch_set_done(stream, entry);
}

CUresult vgs_wait_stream(uint32_t stream) {
  if (vgs_wait_stream_is_done(stream))
    return CUDA_SUCCESS;
  bool waited = false;
  CUresult result = vgs_ring_spin_ns() ? wait_last_flag(stream, &waited) : CUDA_SUCCESS;
  if (waited)
    return result;
  struct vgs_area *area = vgs_ring_spin_ns() ? vgs_area_acquire(VGS_AREA_SMALL) : NULL;
  result = vgs_wait_stream_with(area, stream);
  if (area)
    vgs_area_release(area);
  return result;
}

CUresult vgs_wait_context(void) {
  struct vgs_progress_marks marks, now;
  uint32_t only, ignored, context_id = vgs_context_entered->wire_id;
  if (!vgs_order_knows())
    return vgs_send_cuCtxSynchronize();
  enum vgs_progress state = vgs_progress_query(context_id, &marks, &only);
  if (state == VGS_PROGRESS_IDLE)
    return CUDA_SUCCESS;
  if (state == VGS_PROGRESS_ONE && only && !vgs_object_at(VGW_KIND_STREAM, only))
    state = VGS_PROGRESS_MANY; /* destroyed: its work goes on, but a flag in it would make a later wait fail */
  CUresult result = state == VGS_PROGRESS_ONE ? vgs_wait_stream(only) : vgs_send_cuCtxSynchronize();
  if (state == VGS_PROGRESS_ONE && result == CUDA_ERROR_INVALID_HANDLE) { /* destroyed meanwhile; its work goes on */
    state = VGS_PROGRESS_MANY;
    result = vgs_send_cuCtxSynchronize();
  }
  if (result)
    return result;
  /* The flag of that wait was also work; if nothing else was submitted meanwhile, it is done, too. */
  if (state == VGS_PROGRESS_ONE && vgs_progress_query(context_id, &now, &ignored) != VGS_PROGRESS_MANY &&
      vgs_wait_stream_is_done(only))
    marks = now;
  vgs_progress_set_done(&marks);
  return CUDA_SUCCESS;
}
