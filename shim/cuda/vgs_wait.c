#include "vgs_wait.h"
#include "vgs_api.h"
#include "vgs_capture.h"
#include "vgs_enter.h"
#include "vgs_handle.h"
#include "vgs_progress.h"
#include "vgs_ring.h"
#include "vgw_clock.h"

CUresult vgs_wait_push_flag(struct vgs_area *area, unsigned slot, uint32_t stream) {
  uint32_t value = area->values[slot] + 1;
  area->values[slot] = value ? value : 1;
  area->streams[slot] = stream;
  return vgs_send_vgpuStreamFlag((uintptr_t)vgs_area_flag(area, slot), area->values[slot], stream, false);
}

bool vgs_wait_is_set(struct vgs_area *area, unsigned slot) {
  /* The device writes the flag after all earlier work of the stream. */
  return __atomic_load_n(vgs_area_flag(area, slot), __ATOMIC_ACQUIRE) == area->values[slot];
}

/* NVIDIA's driver spins until the work is done if there are enough processors. Here a wait spins for PATIENCE times the
 * ring's spin time, unless half of the processors are spinning already: a wakeup costs some 30 us. */
enum { PATIENCE = 40 };
static int spinners; /* atomic */

bool vgs_wait_spin(struct vgs_area *area, unsigned slot) {
  uint64_t spin_ns = vgs_ring_spin_ns(), start = spin_ns ? vgw_now_ns() : 0;
  if (vgs_wait_is_set(area, slot) || !spin_ns)
    return vgs_wait_is_set(area, slot);
  bool patient = 2 * __atomic_add_fetch(&spinners, 1, __ATOMIC_RELAXED) <= vgs_ring_processors() - 2;
  uint64_t until = start + (patient ? PATIENCE * spin_ns : spin_ns);
  bool set = false;
  for (unsigned turns = 1; !set && (turns % 64 || vgw_now_ns() < until); turns++) {
    __builtin_ia32_pause();
    set = vgs_wait_is_set(area, slot);
  }
  __atomic_sub_fetch(&spinners, 1, __ATOMIC_RELAXED);
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
  if (!area || !vgs_ring_spin_ns() || vgs_capture_any()) /* a flag in the legacy stream would disturb captures */
    return ask(stream, can_settle(stream) ? entry : 0);
  CUresult result = vgs_wait_push_flag(area, 0, stream);
  bool last = vgs_ring_touched_last(stream, &entry);
  if (!last || !can_settle(stream))
    entry = 0;
  if (result)
    return result;
  if (!vgs_wait_spin(area, 0) || vgs_ring_notice())
    return ask(stream, entry);
  vgs_touch_set_done(stream, entry);
  vgs_ring_drained();
  return CUDA_SUCCESS;
}

bool vgs_wait_stream_is_done(uint32_t stream) {
  struct vgs_progress_marks marks;
  uint32_t only;
  if (!vgs_ring_knows())
    return false;
  uint64_t entry = vgs_touch_entry(VGW_KIND_STREAM, stream);
  struct vgs_touch last = vgs_touch_of(entry);
  bool done = vgs_touch_is_done(stream, entry) ||
              (entry && !last.mixed && vgs_progress_is_done(last.ring, last.position)); /* shown by a context wait */
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
  struct vgs_area *area = vgs_ring_spin_ns() ? vgs_area_acquire(VGS_AREA_SMALL) : NULL;
  CUresult result = vgs_wait_stream_with(area, stream);
  if (area)
    vgs_area_release(area);
  return result;
}

CUresult vgs_wait_context(void) {
  struct vgs_progress_marks marks, now;
  uint32_t only, ignored, context_id = vgs_context_entered->wire_id;
  if (!vgs_ring_knows())
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
