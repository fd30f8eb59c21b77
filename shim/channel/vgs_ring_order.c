#include "vgs_ring_order.h"
#include "vgs_api.h"
#include "vgs_record_stream.h"
#include "vgs_ring_set.h"
#include "vgs_settle.h"
#include "vgs_touch.h"
#include "vgw_wire.h"
#include <string.h>

/* How many records behind its ring's end a touch may be for the next call to go there, too; and how long that call's
 * record may be. What is further away would wait for others' work instead of for what it has to. */
enum { NEAR = 32, SHORT_NBYTES = 4096 };

static uint64_t executed_of(const struct vgs_ring *ring) {
  /* stored (release) by the worker after the record's execution */
  return atomic_load_explicit(&ring->shared->executed, memory_order_acquire);
}

/* Threads that share a stream would have the worker's threads wait for each other at every record. So a call that
 * nobody waits for goes where its stream's last call is, if that was not executed yet and is near the ring's end. */
struct vgs_ring *vgs_ring_choose(struct vgs_ring *own, const struct vgs_touched *touched, uint32_t count,
                                 uint64_t nbytes) {
  unsigned open = vgs_ring_count();
  if (open <= 1 || nbytes > SHORT_NBYTES)
    return own;
  for (uint32_t i = 0; i < count; i++) {
    struct vgs_touch last = vgs_touch_of(vgs_touch_entry(touched[i].kind, touched[i].id));
    struct vgs_ring *ring = &vgs_rings[last.ring];
    if (!last.position || ring == own || last.ring >= open || executed_of(ring) >= last.position ||
        !vgs_ring_try_enter(ring))
      continue;
    if (ring->pushed - last.position <= NEAR)
      return ring;
    vgs_ring_leave(ring);
  }
  return own;
}

/* `ring` NULL: a fence on the socket. It is waited for, which keeps nobody else on the socket waiting: what it waits
 * for may itself wait for a host function, whose end comes that way. */
static CUresult fence_on(struct vgs_ring *ring, unsigned other, uint64_t position) {
  struct vgs_ring *r = &vgs_rings[other];
  if (r == ring || other >= vgs_ring_count() || executed_of(r) >= position)
    return CUDA_SUCCESS;
  if (!ring)
    return vgs_send_vgpuRingFence(position, other, true);
  if (ring->fenced[other] >= position)
    return CUDA_SUCCESS;
  struct {
    struct vgw_header header;
    struct vgw_req_vgpuRingFence body;
  } fence = {{.length = sizeof fence, .opcode = VGW_OP_vgpuRingFence}, {.executed = position, .ring = other}};
  CUresult result = vgs_ring_push(ring, &fence, sizeof fence);
  if (!result)
    ring->fenced[other] = position;
  return result;
}

CUresult vgs_ring_push_fences(struct vgs_ring *ring, const struct vgs_touched *touched, uint32_t count,
                              uint64_t before[]) {
  unsigned open = vgs_ring_count();
  CUresult result = CUDA_SUCCESS;
  before[0] = before[1] = VGS_TOUCH_ALONE;
  if (open <= (ring ? 1 : 0))
    return result;
  bool all = !count;
  uint64_t legacy = vgs_touch_entry(VGW_KIND_STREAM, 0);
  before[0] = legacy;
  all |= vgs_touch_of(legacy).mixed;
  for (uint32_t i = 0; i < count; i++) {
    before[i] = vgs_touch_entry(touched[i].kind, touched[i].id);
    all |= (touched[i].kind == VGW_KIND_STREAM && touched[i].id == 0) || vgs_touch_of(before[i]).mixed;
  }
  if (all) {
    for (unsigned i = 0; i < open && !result; i++)
      result = fence_on(ring, i, __atomic_load_n(&vgs_rings[i].returned, __ATOMIC_ACQUIRE));
    return result;
  }
  for (uint32_t i = 0; i < count && !result; i++) {
    if (before[i])
      result = fence_on(ring, vgs_touch_of(before[i]).ring, vgs_touch_of(before[i]).position);
    if (!result && touched[i].kind == VGW_KIND_STREAM && legacy)
      result = fence_on(ring, vgs_touch_of(legacy).ring, vgs_touch_of(legacy).position);
  }
  return result;
}

/* Work of a thread without a ring is in order with all rings, and is known to be done never. */
CUresult vgs_ring_fence_socket(const struct vgs_call *call) {
  uint64_t before[2];
  vgs_settle_set_blind();
  for (uint32_t i = 0; i < call->touched_count; i++)
    vgs_touch_mix(call->touched[i].kind, call->touched[i].id);
  return vgs_ring_push_fences(NULL, call->touched, call->touched_count, before);
}

/* Waiting calls that leave no work behind are over when they return, and order nothing. */
CUresult vgs_ring_note(struct vgs_ring *own, struct vgs_ring *ring, const struct vgs_touched *touched, uint32_t count,
                       const uint64_t before[]) {
  struct vgs_touch touch = {.ring = (unsigned)(ring - vgs_rings), .position = ring->pushed};
  CUresult result = CUDA_SUCCESS;
  own->last = (struct vgs_ring_mark){touch.ring, touch.position};
  for (uint32_t i = 0; i < count && !result; i++) {
    result = vgs_touch_set(touched[i].kind, touched[i].id, before[i], touch);
    if (touched[i].kind == VGW_KIND_STREAM)
      vgs_settle_note(touch.ring, vgs_thread_context_id, touched[i].id, touch.position);
  }
  if (!count) {
    result = vgs_touch_set(VGW_KIND_STREAM, 0, before[0], touch);
    vgs_settle_note(touch.ring, vgs_thread_context_id, 0, touch.position);
  }
  return result;
}

/* Where no thread has a ring the socket is the only way, and its records are in one order: as if it were ring 0. */
void vgs_ring_note_socket(const struct vgs_call *call) {
  static uint64_t position; /* under the lock of sending */
  struct vgs_touch touch = {.position = ++position};
  for (uint32_t i = 0; i < call->touched_count; i++) {
    if (vgs_touch_set(call->touched[i].kind, call->touched[i].id, VGS_TOUCH_ALONE, touch))
      vgs_settle_set_blind();
    if (call->touched[i].kind == VGW_KIND_STREAM && call->opcode != VGW_OP_cuStreamCreateWithPriority)
      vgs_settle_note(0, vgs_thread_context_id, call->touched[i].id, position);
  }
  if (!call->touched_count) {
    if (vgs_touch_set(VGW_KIND_STREAM, 0, VGS_TOUCH_ALONE, touch))
      vgs_settle_set_blind();
    vgs_settle_note(0, vgs_thread_context_id, 0, position);
  }
}

bool vgs_ring_touched_last(uint32_t stream, uint64_t *entry) {
  const struct vgs_ring *own = vgs_ring_ready();
  *entry = vgs_touch_entry(VGW_KIND_STREAM, stream);
  struct vgs_touch last = vgs_touch_of(*entry);
  return own && own->last.position && !last.mixed && last.ring == own->last.ring && last.position == own->last.position;
}

void vgs_ring_drained(void) {
  struct vgs_ring *own = vgs_ring_ready();
  if (!own || own->last.ring != (unsigned)(own - vgs_rings))
    return;
  if (vgs_ring_enter(own) && own->pushed == own->last.position)
    own->head = own->tail; /* as the worker will say */
  vgs_ring_leave(own);
}
