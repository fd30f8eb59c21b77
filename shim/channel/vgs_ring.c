#define _GNU_SOURCE
#include "vgs_ring.h"
#include "vgs_api.h"
#include "vgs_progress.h"
#include "vgs_record_stream.h"
#include "vgs_ring_set.h"
#include "vgw_clock.h"
#include "vgw_futex.h"
#include "vgw_wire.h"
#include <string.h>
#include <sys/mman.h>
#include <time.h>

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
CUresult vgs_ring_fence_socket(const struct vgs_call *call) {
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
    if (touched[i].kind == VGW_KIND_STREAM)
      vgs_progress_add(touch.ring, vgs_thread_context_id, touched[i].id, touch.position);
  }
  if (!count) {
    result = vgs_touch_set(VGW_KIND_STREAM, 0, before[0], touch);
    vgs_progress_add(touch.ring, vgs_thread_context_id, 0, touch.position);
  }
  return result;
}

/* While no thread has a ring, all records travel on the socket in one order, which is treated as ring 0. */
void vgs_ring_mark_socket(const struct vgs_call *call) {
  static uint64_t position; /* under the lock of sending */
  struct vgs_touch touch = {.position = ++position};
  for (uint32_t i = 0; i < call->touched_count; i++) {
    if (vgs_touch_set(call->touched[i].kind, call->touched[i].id, VGS_TOUCH_ALONE, touch))
      vgs_progress_set_unknown();
    if (call->touched[i].kind == VGW_KIND_STREAM && call->opcode != VGW_OP_cuStreamCreateWithPriority)
      vgs_progress_add(0, vgs_thread_context_id, call->touched[i].id, position);
  }
  if (!call->touched_count) {
    if (vgs_touch_set(VGW_KIND_STREAM, 0, VGS_TOUCH_ALONE, touch))
      vgs_progress_set_unknown();
    vgs_progress_add(0, vgs_thread_context_id, 0, position);
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
    own->head = own->tail; /* as the worker will report */
  vgs_ring_leave(own);
}

/* --- calls --- */

enum { CHECK_MS = 20, NAP_NS = 20000 };
enum { REGION_NAPS_NS = 1000000 }; /* how long a client polls for a reply in a region before it asks for a wake-up */

static void relax(void) { __builtin_ia32_pause(); }

static void write_record(uint8_t *at, const struct vgw_header *header, const struct vgs_call *call) {
  memcpy(at, header, sizeof *header);
  at += sizeof *header;
  if (header->flags & VGW_CORRELATED) {
    memcpy(at, &vgs_thread_correlation, sizeof vgs_thread_correlation);
    at += sizeof vgs_thread_correlation;
  }
  for (uint32_t i = 0; i <= call->part_count; i++) {
    const void *from = i ? call->parts[i - 1].iov_base : call->fixed;
    uint64_t nbytes = i ? call->parts[i - 1].iov_len : call->fixed_nbytes;
    if (!nbytes)
      continue;
    uint64_t padded = vgw_pad8(nbytes);
    memset(at + padded - 8, 0, 8); /* padding first, then the bytes over it */
    memcpy(at, from, nbytes);
    at += padded;
  }
}

/* A region has no futex: nap, ever longer, then ask the worker to report the reply on the socket. */
static CUresult wait_reply_in_region(struct vgs_ring *ring, uint32_t sequence) {
  uint64_t begun_ns = vgw_now_ns();
  for (unsigned turns = 0;; turns++) {
    /* reply: stored (release) by the worker after the reply's bytes */
    if (atomic_load_explicit(&ring->shared->reply, memory_order_acquire) == sequence)
      return CUDA_SUCCESS;
    if (vgs_stream_error())
      return vgs_stream_error();
    if (turns % 64 && vgs_ring_spin_ns()) { /* read the clock only every 64 turns */
      relax();
      continue;
    }
    uint64_t waited_ns = vgw_now_ns() - begun_ns;
    if (waited_ns < vgs_ring_spin_ns())
      continue;
    if (waited_ns > REGION_NAPS_NS) {
      CUresult result = vgs_send_vgpuRingWait((uint32_t)(ring - vgs_rings), sequence);
      if (result && vgs_stream_error())
        return result; /* any other error is a queued call's, and is also in the reply */
      continue;
    }
    nanosleep(&(struct timespec){0, NAP_NS}, NULL);
  }
}

static void look_at_socket(void) {
  if (vgs_stream_peer_gone())
    vgs_stream_fail(CUDA_ERROR_DEVICE_UNAVAILABLE, "the worker closed the connection");
  else
    vgs_stream_read_arrived();
}

/* Sleep until the reply to `sequence` is in the ring. */
static CUresult wait_reply(struct vgs_ring *ring, uint32_t sequence) {
  struct vgw_ring *shared = ring->shared;
  uint64_t until = vgs_ring_spin_ns() ? vgw_now_ns() + vgs_ring_spin_ns() : 0;
  unsigned turns = 0;
  for (;;) {
    /* reply: stored (release) by the worker after the reply's bytes */
    uint32_t seen = atomic_load_explicit(&shared->reply, memory_order_acquire);
    if (seen == sequence)
      return CUDA_SUCCESS;
    if (vgs_stream_error())
      return vgs_stream_error();
    if (until) {
      relax(); /* one pause per check: on recent processors it takes as long as the store takes to become visible */
      if (++turns % 64 == 0 && vgw_now_ns() > until)
        until = 0;
      continue;
    }
    atomic_store_explicit(&shared->client_waits, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst); /* pairs with the worker's fence between `reply` and `client_waits` */
    if (atomic_load_explicit(&shared->reply, memory_order_acquire) == seen &&
        vgw_futex_wait(&shared->reply, seen, CHECK_MS) == -ETIMEDOUT)
      look_at_socket();
    atomic_store_explicit(&shared->client_waits, 0, memory_order_relaxed);
  }
}

/* Copy the reply out. Its lengths come from the worker and are checked against the caller's buffers. */
static CUresult take_reply(struct vgs_ring *ring, struct vgs_call *call, uint32_t sequence, uint16_t *notices) {
  const uint8_t *at = ring->shared->replies;
  struct vgw_header header;
  memcpy(&header, at, sizeof header);
  CUresult result = (CUresult)header.context;
  uint64_t fixed_nbytes = vgw_pad8(call->reply_fixed_nbytes);
  bool sound = header.length >= sizeof header && header.length <= VGW_RING_REPLY_NBYTES &&
               header.opcode == call->opcode && header.sequence == sequence;
  uint64_t body_nbytes = sound ? header.length - sizeof header : 0;
  if (sound && !result)
    sound = body_nbytes >= fixed_nbytes && body_nbytes - fixed_nbytes <= vgw_pad8(call->reply_part_capacity);
  if (!sound) {
    vgs_stream_fail(CUDA_ERROR_DEVICE_UNAVAILABLE, "a reply that fits no call");
    return vgs_stream_error();
  }
  *notices = header.flags;
  if (result)
    return result;
  at += sizeof header;
  if (call->reply_fixed_nbytes)
    memcpy(call->reply_fixed, at, call->reply_fixed_nbytes);
  uint64_t part_nbytes = body_nbytes - fixed_nbytes;
  call->reply_part_nbytes = part_nbytes < call->reply_part_capacity ? part_nbytes : call->reply_part_capacity;
  if (call->reply_part_nbytes)
    memcpy(call->reply_part, at + fixed_nbytes, call->reply_part_nbytes);
  return CUDA_SUCCESS;
}

/* Write the record and wait for its reply if it has one. */
static CUresult call_inside(struct vgs_ring *own, struct vgs_ring *ring, struct vgs_call *call, uint64_t length,
                            bool wait, uint16_t *notices) {
  uint64_t before[2];
  CUresult result = push_fences(ring, call->touched, call->touched_count, before);
  if (result)
    return result;
  struct vgw_header header = {.length = (uint32_t)length,
                              .opcode = call->opcode,
                              .flags = (wait ? VGW_WANT_REPLY : 0) | (vgs_thread_correlation ? VGW_CORRELATED : 0),
                              .context = vgs_thread_context_id};
  if (wait && !(header.sequence = ++ring->sequence))
    header.sequence = ++ring->sequence; /* a new ring holds 0 */
  uint8_t *at = vgs_ring_reserve(ring, length);
  if (!at)
    return vgs_stream_error();
  write_record(at, &header, call);
  vgs_ring_publish(ring, length);
  if (!wait || (call->touched_count && !call->settled))
    result = record_touches(own, ring, call->touched, call->touched_count, before);
  if (wait && !result) {
    __atomic_store_n(&ring->inside, VGS_RING_WAITING,
                     __ATOMIC_RELEASE); /* other threads may use the ring while this one waits */
    result = vgs_ring_in_region() ? wait_reply_in_region(ring, header.sequence) : wait_reply(ring, header.sequence);
    if (!result) {
      ring->head = ring->tail; /* the reply shows that the worker has executed all records up to here */
      result = take_reply(ring, call, header.sequence, notices);
    }
  }
  __atomic_store_n(&ring->returned, ring->pushed, __ATOMIC_RELEASE);
  return result;
}

static CUresult length_of(const struct vgs_call *call, uint64_t *length) {
  *length = sizeof(struct vgw_header) + vgw_pad8(call->fixed_nbytes);
  if (vgs_thread_correlation)
    *length += sizeof vgs_thread_correlation;
  for (uint32_t i = 0; i < call->part_count; i++) {
    if (call->parts[i].iov_len > VGW_RING_RECORD_NBYTES)
      return CUDA_ERROR_INVALID_VALUE;
    *length += vgw_pad8(call->parts[i].iov_len);
  }
  return *length > VGW_RING_RECORD_NBYTES ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult vgs_ring_call(struct vgs_ring *own, struct vgs_call *call, bool wait, uint16_t *notices) {
  uint64_t length;
  CUresult result = length_of(call, &length);
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

uint32_t vgs_ring_notice(void) {
  struct vgs_ring *own = vgs_ring_enter_own();
  if (!own)
    return VGW_NOTICE_FAILED;
  uint32_t notice = atomic_load_explicit(&own->shared->notice, memory_order_acquire);
  vgs_ring_leave(own);
  return notice;
}

bool vgs_ring_knows(void) { return vgs_ring_active() ? !vgs_ring_notice() : vgs_stream_attached() && !vgs_ring_any(); }

static void leave_both(const struct vgs_record *record) {
  if (record->ring != record->own)
    vgs_ring_leave(record->ring);
  vgs_ring_leave(record->own);
}

void *vgs_ring_begin(struct vgs_record *record, uint16_t opcode, uint32_t stream, uint64_t nbytes) {
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

CUresult vgs_ring_send(struct vgs_record *record) {
  vgs_ring_publish(record->ring, record->nbytes);
  CUresult result = record_touches(record->own, record->ring, &record->touched, 1, record->before);
  __atomic_store_n(&record->ring->returned, record->ring->pushed, __ATOMIC_RELEASE);
  leave_both(record);
  return result;
}

void vgs_ring_cancel(struct vgs_record *record) { leave_both(record); }
