#define _GNU_SOURCE
#include "vgs_ring_reply.h"
#include "vgs_api.h"
#include "vgs_record_stream.h"
#include "vgs_ring_set.h"
#include "vgw_clock.h"
#include "vgw_wire.h"
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <time.h>

enum { CHECK_MS = 20, NAP_NS = 20000 };
enum { REGION_NAPS_NS = 1000000 }; /* how long a client polls for a reply in a region before it asks for a wake-up */

static void relax(void) { __builtin_ia32_pause(); }

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

/* Look at the ring for a while: NVIDIA's driver would use the processor for what the worker does meanwhile. False: the
 * reply is not there yet. */
static bool spin(const struct vgs_ring *ring, uint32_t sequence) {
  uint64_t until = vgw_now_ns() + vgs_ring_spin_ns();
  bool found = false, is_long = false;
  for (unsigned turns = 1; !found && (turns % 64 || (vgw_now_ns() < until && !vgs_stream_error())); turns++) {
    relax(); /* one pause per check: on recent processors it takes as long as the store takes to become visible */
    /* reply: stored (release) by the worker after the reply's bytes */
    found = atomic_load_explicit(&ring->shared->reply, memory_order_acquire) == sequence;
    if (found || turns % 64 || turns < VGS_RING_YIELD_TURNS)
      continue;
    if (!is_long)
      until += vgs_ring_spin_begin();
    is_long = true;
    sched_yield();
  }
  if (is_long)
    vgs_ring_spin_end();
  return found;
}

/* Sleep until the reply to `sequence` is in the ring. */
static CUresult wait_reply(struct vgs_ring *ring, uint32_t sequence) {
  struct vgw_ring *shared = ring->shared;
  if (vgs_ring_spin_ns() && spin(ring, sequence))
    return CUDA_SUCCESS;
  for (;;) {
    /* reply: stored (release) by the worker after the reply's bytes */
    uint32_t seen = atomic_load_explicit(&shared->reply, memory_order_acquire);
    if (seen == sequence)
      return CUDA_SUCCESS;
    if (vgs_stream_error())
      return vgs_stream_error();
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
  uint64_t most = VGW_SHORT_NBYTES;
  const uint8_t *at = (const uint8_t *)ring->shared->short_reply;
  struct vgw_header header;
  memcpy(&header, at, sizeof header);
  if (header.sequence != sequence) {
    most = VGW_RING_REPLY_NBYTES;
    at = ring->shared->replies;
    memcpy(&header, at, sizeof header);
  }
  CUresult result = (CUresult)header.context;
  uint64_t fixed_nbytes = vgw_pad8(call->reply_fixed_nbytes);
  bool sound = header.length >= sizeof header && header.length <= most && header.opcode == call->opcode &&
               header.sequence == sequence;
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

CUresult vgs_ring_wait_reply(struct vgs_ring *ring, struct vgs_call *call, uint32_t sequence, uint16_t *notices) {
  CUresult result = vgs_ring_in_region() ? wait_reply_in_region(ring, sequence) : wait_reply(ring, sequence);
  if (result)
    return result;
  ring->head = ring->tail; /* the reply shows that the worker has executed all records up to here */
  return take_reply(ring, call, sequence, notices);
}
