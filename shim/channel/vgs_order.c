#include "vgs_order.h"
#include "vgs_api.h"
#include "vgs_record_stream.h"
#include "vgs_ring.h"
#include "vgs_ring_reply.h"
#include "vgs_ring_set.h"
#include "vgw_wire.h"
#include <stdlib.h>
#include <string.h>

/* --- the last touch of each stream and event --- */

enum { LEAF_SIZE = 1024, LEAVES = 4096, RING_SHIFT = 56, MIXED_SHIFT = 55 }; /* ids below 4 Mi, as vgs_handle gives */
#define POSITION_MASK ((UINT64_C(1) << MIXED_SHIFT) - 1)

struct leaf {
  uint64_t last[LEAF_SIZE], settled[LEAF_SIZE]; /* atomic; ring << 56 | mixed << 55 | position */
};

static struct leaf *leaves[2][LEAVES]; /* atomic */

static struct leaf **leaf_of(uint16_t kind, uint32_t id) {
  return &leaves[kind == VGW_KIND_EVENT][id / LEAF_SIZE % LEAVES];
}

uint64_t vgs_touch_entry(uint16_t kind, uint32_t id) {
  struct leaf *leaf = __atomic_load_n(leaf_of(kind, id), __ATOMIC_ACQUIRE);
  return leaf ? __atomic_load_n(&leaf->last[id % LEAF_SIZE], __ATOMIC_ACQUIRE) : 0;
}

struct vgs_touch vgs_touch_of(uint64_t entry) {
  return (struct vgs_touch){
      .ring = (unsigned)(entry >> RING_SHIFT), .mixed = entry >> MIXED_SHIFT & 1, .position = entry & POSITION_MASK};
}

CUresult vgs_touch_set(uint16_t kind, uint32_t id, uint64_t before, struct vgs_touch touch) {
  struct leaf **place = leaf_of(kind, id), *leaf = __atomic_load_n(place, __ATOMIC_ACQUIRE);
  if (!leaf) {
    struct leaf *fresh = calloc(1, sizeof *fresh);
    if (!fresh)
      return CUDA_ERROR_OUT_OF_MEMORY;
    if (__atomic_compare_exchange_n(place, &leaf, fresh, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
      leaf = fresh;
    else
      free(fresh);
  }
  uint64_t entry = (uint64_t)touch.ring << RING_SHIFT | touch.position, *last = &leaf->last[id % LEAF_SIZE];
  if (before == VGS_TOUCH_ALONE)
    __atomic_store_n(last, entry, __ATOMIC_RELEASE);
  else if (!__atomic_compare_exchange_n(last, &before, entry, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    __atomic_store_n(last, entry | UINT64_C(1) << MIXED_SHIFT, __ATOMIC_RELEASE);
  return CUDA_SUCCESS;
}

void vgs_touch_mix(uint16_t kind, uint32_t id) {
  struct leaf *leaf = __atomic_load_n(leaf_of(kind, id), __ATOMIC_ACQUIRE);
  if (leaf) /* without a table no progress was recorded */
    __atomic_fetch_or(&leaf->last[id % LEAF_SIZE], UINT64_C(1) << MIXED_SHIFT, __ATOMIC_ACQ_REL);
}

void vgs_touch_set_done(uint32_t stream, uint64_t entry) {
  struct leaf *leaf = __atomic_load_n(leaf_of(VGW_KIND_STREAM, stream), __ATOMIC_ACQUIRE);
  if (leaf && !vgs_touch_of(entry).mixed)
    __atomic_store_n(&leaf->settled[stream % LEAF_SIZE], entry, __ATOMIC_RELEASE);
}

bool vgs_touch_is_done(uint32_t stream, uint64_t entry) {
  struct leaf *leaf = __atomic_load_n(leaf_of(VGW_KIND_STREAM, stream), __ATOMIC_ACQUIRE);
  uint64_t settled = leaf ? __atomic_load_n(&leaf->settled[stream % LEAF_SIZE], __ATOMIC_ACQUIRE) : 0;
  struct vgs_touch done = vgs_touch_of(settled), wanted = vgs_touch_of(entry);
  /* Positions of different rings cannot be compared. */
  return settled && entry && !wanted.mixed && done.ring == wanted.ring && done.position >= wanted.position;
}

void vgs_touch_clear(void) {
  for (int kind = 0; kind < 2; kind++)
    for (int i = 0; i < LEAVES; i++) {
      struct leaf *leaf = __atomic_load_n(&leaves[kind][i], __ATOMIC_ACQUIRE);
      for (int j = 0; leaf && j < LEAF_SIZE; j++) {
        __atomic_store_n(&leaf->last[j], 0, __ATOMIC_RELAXED);
        __atomic_store_n(&leaf->settled[j], 0, __ATOMIC_RELAXED);
      }
    }
}

void vgs_touch_fini(void) {
  for (int kind = 0; kind < 2; kind++)
    for (int i = 0; i < LEAVES; i++) {
      free(leaves[kind][i]);
      leaves[kind][i] = NULL;
    }
}

/* --- which ring a call uses, and which records it must follow --- */

/* A call joins the ring of its stream's last call only if at most NEAR records follow that call in the ring and the
 * new record has at most SHORT_NBYTES bytes: behind more records it would wait for other streams' work. */
enum { NEAR = 32, SHORT_NBYTES = 4096 };

static uint64_t executed_of(const struct vgs_ring *ring) {
  /* stored (release) by the worker after the record's execution */
  return atomic_load_explicit(&ring->shared->executed, memory_order_acquire);
}

/* Threads that share a stream would have the worker's threads wait for each other at every record. So a queued call is
 * pushed to the ring of its stream's last call, if that was not executed yet and is near the ring's end. */
static struct vgs_ring *choose_ring(struct vgs_ring *own, const struct vgs_touched *touched, uint32_t count,
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

/* `ring` NULL: a fence on the socket. The call waits for its reply, which delays no other call on the socket: the
 * awaited record may itself wait for a host function, whose end is reported on the socket. */
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

static CUresult push_fences(struct vgs_ring *ring, const struct vgs_touched *touched, uint32_t count,
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

/* Work of a thread without a ring is ordered after all rings, and never known to be done. */
CUresult vgs_order_fence_socket(const struct vgs_call *call) {
  uint64_t before[2];
  vgs_progress_set_unknown();
  for (uint32_t i = 0; i < call->touched_count; i++)
    vgs_touch_mix(call->touched[i].kind, call->touched[i].id);
  return push_fences(NULL, call->touched, call->touched_count, before);
}

/* Not for waiting calls that leave no work behind: they are over when they return, so no later call waits for them. */
static CUresult record_touches(struct vgs_ring *own, struct vgs_ring *ring, const struct vgs_touched *touched,
                               uint32_t count, const uint64_t before[]) {
  struct vgs_touch touch = {.ring = (unsigned)(ring - vgs_rings), .position = ring->pushed};
  CUresult result = CUDA_SUCCESS;
  own->last = (struct vgs_ring_mark){touch.ring, touch.position};
  for (uint32_t i = 0; i < count && !result; i++) {
    result = vgs_touch_set(touched[i].kind, touched[i].id, before[i], touch);
    if (touched[i].kind != VGW_KIND_STREAM)
      continue;
    own->before = before[i];
    vgs_progress_add(touch.ring, vgs_thread_context_id, touched[i].id, touch.position);
  }
  if (!count) {
    own->before = before[0];
    result = vgs_touch_set(VGW_KIND_STREAM, 0, before[0], touch);
    vgs_progress_add(touch.ring, vgs_thread_context_id, 0, touch.position);
  }
  return result;
}

/* While no thread has a ring, all records travel on the socket in one order, which is treated as ring 0. */
void vgs_order_mark_socket(const struct vgs_call *call) {
  static uint64_t position; /* under the lock of sending */
  struct vgs_touch touch = {.position = ++position};
  for (uint32_t i = 0; i < call->touched_count; i++) {
    if (vgs_touch_set(call->touched[i].kind, call->touched[i].id, VGS_TOUCH_ALONE, touch))
      vgs_progress_set_unknown();
    if (call->touched[i].kind == VGW_KIND_STREAM && !call->creates)
      vgs_progress_add(0, vgs_thread_context_id, call->touched[i].id, position);
  }
  if (!call->touched_count) {
    if (vgs_touch_set(VGW_KIND_STREAM, 0, VGS_TOUCH_ALONE, touch))
      vgs_progress_set_unknown();
    vgs_progress_add(0, vgs_thread_context_id, 0, position);
  }
}

bool vgs_order_is_last(uint32_t stream, uint64_t *entry) {
  const struct vgs_ring *own = vgs_ring_own();
  *entry = vgs_touch_entry(VGW_KIND_STREAM, stream);
  struct vgs_touch last = vgs_touch_of(*entry);
  return own && own->last.position && !last.mixed && last.ring == own->last.ring && last.position == own->last.position;
}

/* While there is one ring, nothing came between unless a thread without a ring sent it on the socket. */
bool vgs_order_is_next(uint32_t stream, uint64_t before, uint64_t *entry) {
  if (!vgs_order_is_last(stream, entry))
    return false;
  const struct vgs_ring *own = vgs_ring_own();
  return own->before == before ||
         (own->before == VGS_TOUCH_ALONE && vgs_ring_count() == 1 && !vgs_progress_is_unknown());
}

void vgs_order_drained(void) {
  struct vgs_ring *own = vgs_ring_own();
  if (!own || own->last.ring != (unsigned)(own - vgs_rings))
    return;
  if (vgs_ring_enter(own) && own->pushed == own->last.position)
    own->head = own->tail; /* as the worker will report */
  vgs_ring_leave(own);
}

/* --- calls --- */

/* Write the record and wait for its reply if it has one. */
static CUresult call_inside(struct vgs_ring *own, struct vgs_ring *ring, struct vgs_call *call, uint64_t length,
                            bool wait, uint16_t *notices) {
  uint64_t before[2];
  CUresult result = push_fences(ring, call->touched, call->touched_count, before);
  if (result)
    return result;
  struct vgw_header header = {.length = (uint32_t)length,
                              .opcode = call->opcode,
                              .flags = (wait ? VGW_WANT_REPLY | VGW_SHORT_REPLY : 0) |
                                       (vgs_thread_correlation ? VGW_CORRELATED : 0),
                              .context = vgs_thread_context_id};
  if (wait && !(header.sequence = ++ring->sequence))
    header.sequence = ++ring->sequence; /* a new ring holds 0 */
  uint8_t *at = vgs_ring_reserve(ring, length);
  if (!at)
    return vgs_stream_error();
  vgs_ring_write(at, &header, call);
  vgs_ring_publish(ring, length);
  if (!wait || (call->touched_count && !call->settled))
    result = record_touches(own, ring, call->touched, call->touched_count, before);
  if (wait && !result) {
    __atomic_store_n(&ring->inside, VGS_RING_WAITING,
                     __ATOMIC_RELEASE); /* other threads may use the ring while this one waits */
    result = vgs_ring_wait_reply(ring, call, header.sequence, notices);
  }
  __atomic_store_n(&ring->returned, ring->pushed, __ATOMIC_RELEASE);
  return result;
}

CUresult vgs_order_call(struct vgs_ring *own, struct vgs_call *call, bool wait, uint16_t *notices) {
  uint64_t length;
  CUresult result = vgs_ring_record_length(call, &length);
  if (result)
    return result;
  if (vgs_ring_enter(own)) {
    struct vgs_ring *ring = wait ? own : choose_ring(own, call->touched, call->touched_count, length);
    result = call_inside(own, ring, call, length, wait, notices);
    if (ring != own)
      vgs_ring_leave(ring);
  } else {
    result = vgs_stream_error() ? vgs_stream_error() : CUDA_ERROR_DEINITIALIZED;
  }
  vgs_ring_leave(own);
  return result;
}

bool vgs_order_knows(void) {
  if (vgs_ring_own() || vgs_ring_active())
    return !vgs_ring_notice();
  return vgs_stream_attached() && !vgs_ring_any();
}

static void leave_both(const struct vgs_record *record) {
  if (record->ring != record->own)
    vgs_ring_leave(record->ring);
  vgs_ring_leave(record->own);
}

void *vgs_order_begin(struct vgs_record *record, uint16_t opcode, uint32_t stream, uint64_t nbytes) {
  uint64_t prefix_nbytes = vgs_thread_correlation ? sizeof vgs_thread_correlation : 0;
  struct vgw_header header = {.length = (uint32_t)(sizeof header + prefix_nbytes + nbytes),
                              .opcode = opcode,
                              .flags = prefix_nbytes ? VGW_CORRELATED : 0,
                              .context = vgs_thread_context_id};
  if (nbytes > VGS_RECORD_NBYTES || !(record->own = vgs_ring_enter_own()))
    return NULL;
  record->touched = (struct vgs_touched){VGW_KIND_STREAM, stream};
  record->nbytes = header.length;
  record->ring = choose_ring(record->own, &record->touched, 1, header.length);
  uint8_t *at = NULL;
  if (!push_fences(record->ring, &record->touched, 1, record->before))
    at = vgs_ring_reserve(record->ring, header.length);
  if (!at) {
    leave_both(record);
    return NULL;
  }
  memcpy(at, &header, sizeof header);
  memcpy(at + sizeof header, &vgs_thread_correlation, prefix_nbytes);
  return at + sizeof header + prefix_nbytes;
}

CUresult vgs_order_send(struct vgs_record *record) {
  vgs_ring_publish(record->ring, record->nbytes);
  CUresult result = record_touches(record->own, record->ring, &record->touched, 1, record->before);
  __atomic_store_n(&record->ring->returned, record->ring->pushed, __ATOMIC_RELEASE);
  leave_both(record);
  return result;
}

void vgs_order_cancel(struct vgs_record *record) { leave_both(record); }
