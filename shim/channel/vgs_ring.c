#define _GNU_SOURCE
#include "vgs_ring.h"
#include "vgs_api.h"
#include "vgs_record_stream.h"
#include "vgw_wire.h"
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { NAP_NS = 20000, NAP_MAX_NS = 1000000, PLAUSIBLE_SPINS = 64, TRY_TURNS = 256 };

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { POPULATE_NBYTES = 256 << 10, LINE_NBYTES = 64 };

/* How far ahead of the tail cache lines are fetched for writing: about ten launches' records. A line takes as long as
 * one or two launches to arrive. */
enum { AHEAD_NBYTES = 1024 };

/* A ring that is empty at a position beyond this one restarts at its beginning, so that it keeps using the same cache
 * lines. */
enum { REUSED_NBYTES = 64 << 10 };

/* Records of a ring that the worker has not executed. */
enum { BACKLOG_MAX = 1024 };

struct vgs_ring vgs_rings[VGW_RINGS_MAX];
struct vgs_ring_state vgs_ring_state;
_Thread_local struct vgs_ring_owned vgs_ring_owned;

/* --- being inside a ring --- */

struct vgs_ring *vgs_ring_own(void) {
  struct vgs_ring *ring = vgs_ring_owned.ring;
  bool valid = ring && vgs_ring_owned.generation == __atomic_load_n(&vgs_ring_state.generation, __ATOMIC_ACQUIRE);
  return valid ? ring : NULL;
}

/* Called between attempts; false when it is not worth waiting any longer. `turns` counts the attempts, from 0. */
static bool nap(int *turns) {
  if (++*turns < PLAUSIBLE_SPINS && vgs_ring_spin_ns()) {
    __builtin_ia32_pause();
    return true;
  }
  if (vgs_stream_error())
    return false;
  if (*turns % 512 == 0 && vgs_stream_peer_gone()) {
    vgs_stream_fail(CUDA_ERROR_DEVICE_UNAVAILABLE, "the worker closed the connection");
    return false;
  }
  if (*turns % 512 == 0)
    vgs_stream_read_arrived();
  long nap_ns = (long)NAP_NS * (1 + *turns / 64); /* naps grow with the number of turns */
  nanosleep(&(struct timespec){0, nap_ns < NAP_MAX_NS ? nap_ns : NAP_MAX_NS}, NULL);
  return true;
}

/* Enter the ring if its user leaves it soon. VGS_RING_FREE: the caller is inside; else its user. */
static int try_enter(struct vgs_ring *ring) {
  int was = VGS_RING_FREE;
  for (int turns = 0; turns < TRY_TURNS; turns++) {
    if (__atomic_compare_exchange_n(&ring->inside, &was, VGS_RING_PUSHING, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
      return VGS_RING_FREE;
    if (was == VGS_RING_WAITING)
      break;
    if (vgs_ring_spin_ns() && turns < PLAUSIBLE_SPINS)
      __builtin_ia32_pause();
    else
      sched_yield();
    was = VGS_RING_FREE;
  }
  return was == VGS_RING_FREE ? VGS_RING_PUSHING : was;
}

/* Either this thread sees that the session has ended, or the ending thread sees this one: both sides store, fence,
 * load. */
bool vgs_ring_enter(struct vgs_ring *ring) {
  while (try_enter(ring)) /* a thread that pushes leaves soon */
    nanosleep(&(struct timespec){0, NAP_NS}, NULL);
  return vgs_ring_owned.generation == __atomic_load_n(&vgs_ring_state.generation, __ATOMIC_SEQ_CST);
}

struct vgs_ring *vgs_ring_enter_own(void) {
  struct vgs_ring *ring = vgs_ring_owned.ring;
  if (!ring || vgs_ring_enter(ring))
    return ring;
  vgs_ring_leave(ring);
  return NULL;
}

bool vgs_ring_try_enter(struct vgs_ring *ring) { return !try_enter(ring); }

void vgs_ring_leave(struct vgs_ring *ring) { __atomic_store_n(&ring->inside, VGS_RING_FREE, __ATOMIC_RELEASE); }

uint32_t vgs_ring_notice(void) {
  struct vgs_ring *own = vgs_ring_enter_own();
  if (!own)
    return VGW_NOTICE_FAILED;
  uint32_t notice = atomic_load_explicit(&own->shared->notice, memory_order_acquire);
  vgs_ring_leave(own);
  return notice;
}

/* --- appending records --- */

/* For writing: this processor then owns the line exclusively. __builtin_prefetch emits that only where -march promises
 * prefetchw; every x86-64 processor takes the instruction, those before Broadwell as a no-op. */
static void fetch_to_write(const uint8_t *line) {
#ifdef __x86_64__
  __asm__ volatile("prefetchw %0" : : "m"(*line));
#else
  __builtin_prefetch(line, 1);
#endif
}

static void fetch_lines(struct vgs_ring *ring) {
  if (ring->prefetched < ring->tail)
    ring->prefetched = ring->tail;
  for (; ring->prefetched < ring->tail + AHEAD_NBYTES; ring->prefetched += LINE_NBYTES)
    fetch_to_write(ring->shared->records + ring->prefetched % VGW_RING_NBYTES);
}

/* Populate the next part of the ring at once: a page fault for each page would cost a fifth of a launch. */
static void populate(struct vgs_ring *ring) {
  uint64_t left = VGW_RING_NBYTES - ring->populated, nbytes = left < POPULATE_NBYTES ? left : (uint64_t)POPULATE_NBYTES;
  if (!vgs_ring_in_region()) /* populated; kernels before 5.14 refuse, and each page then faults on first use */
    madvise(ring->shared->records + ring->populated, nbytes, MADV_POPULATE_WRITE);
  ring->populated += nbytes;
}

/* Bound the records that the worker has not executed. Without a bound, a thread that launches faster than the worker
 * executes would have more than 100,000 records before the call of another thread that must follow them. False: the
 * session is over. */
static bool await_backlog(struct vgs_ring *ring) {
  for (int turns = 0; ring->pushed - ring->executed >= BACKLOG_MAX;) {
    /* stored (release) by the worker after the record's execution */
    ring->executed = atomic_load_explicit(&ring->shared->executed, memory_order_acquire);
    if (ring->pushed - ring->executed >= BACKLOG_MAX && !nap(&turns))
      return false;
  }
  return true;
}

/* Room for `nbytes` in one piece, after padding to the ring's beginning if need be. NULL: the session is over. */
uint8_t *vgs_ring_reserve(struct vgs_ring *ring, uint64_t nbytes) {
  struct vgw_ring *shared = ring->shared;
  uint64_t place = ring->tail % VGW_RING_NBYTES;
  bool anew = ring->head == ring->tail && place >= REUSED_NBYTES && nbytes <= place;
  uint64_t padding = anew || VGW_RING_NBYTES - place < nbytes ? VGW_RING_NBYTES - place : 0;
  if (!await_backlog(ring))
    return NULL;
  for (int turns = -1; ring->tail + padding + nbytes - ring->head > VGW_RING_NBYTES;) {
    if (turns >= 0 && !nap(&turns))
      return NULL;
    turns = turns < 0 ? 0 : turns;
    /* head: stored (release) by the worker once it has read the bytes */
    ring->head = atomic_load_explicit(&shared->head, memory_order_acquire);
  }
  if (padding) {
    struct vgw_header filler = {.length = (uint32_t)padding, .opcode = VGW_RING_PADDING};
    memcpy(shared->records + place, &filler, padding < sizeof filler ? padding : sizeof filler);
    ring->tail += padding;
    place = 0;
  }
  if (place + nbytes > ring->populated)
    populate(ring);
  return shared->records + place;
}

/* The worker's thread sleeps, or is about to. Wake it once per sleep, which `worker_waits` numbers: until it runs, as
 * many as fifty further records may be published. */
static void wake_worker(struct vgs_ring *ring, uint32_t sleep) {
  ring->woken = sleep;
  if (!vgs_ring_in_region()) {
    atomic_fetch_add_explicit(&ring->shared->doorbell, 1, memory_order_release);
    vgw_futex_wake(&ring->shared->doorbell);
  } else {
    vgs_send_vgpuRingWake((uint32_t)(ring - vgs_rings),
                          false); /* on failure the session is over, which the caller checks */
  }
}

/* Copy a short record beside `tail`. */
static void copy_short(struct vgw_ring *shared, uint64_t position, uint64_t nbytes) {
  const uint8_t *at = shared->records + position % VGW_RING_NBYTES;
  atomic_store_explicit(&shared->short_at, 0, memory_order_relaxed);
  atomic_thread_fence(memory_order_release); /* pairs with the worker's fence behind its reading of the words */
  for (uint64_t i = 0; i < nbytes / 8; i++) {
    uint64_t word;
    memcpy(&word, at + 8 * i, sizeof word);
    atomic_store_explicit(&shared->short_record[i], word, memory_order_relaxed);
  }
  atomic_store_explicit(&shared->short_at, position + 1, memory_order_release);
}

/* Make what was written visible, and wake the worker's thread if it sleeps. */
void vgs_ring_publish(struct vgs_ring *ring, uint64_t nbytes) {
  struct vgw_ring *shared = ring->shared;
  if (nbytes <= VGW_SHORT_NBYTES)
    copy_short(shared, ring->tail, nbytes);
  ring->tail += nbytes;
  ring->pushed++;
  /* Either the worker sees the new tail before it sleeps, or its wait is seen here: both sides store, fence, load.
   * An exchange is both store and fence, and cheaper than the two. */
  atomic_exchange_explicit(&shared->tail, ring->tail, memory_order_seq_cst);
  uint32_t sleep = atomic_load_explicit(&shared->worker_waits, memory_order_relaxed);
  if (sleep && sleep != ring->woken)
    wake_worker(ring, sleep);
  fetch_lines(ring);
}

CUresult vgs_ring_push(struct vgs_ring *ring, const void *record, uint32_t nbytes) {
  uint8_t *at = vgs_ring_reserve(ring, nbytes);
  if (!at)
    return vgs_stream_error();
  memcpy(at, record, nbytes);
  vgs_ring_publish(ring, nbytes);
  return CUDA_SUCCESS;
}

void vgs_ring_write(uint8_t *at, const struct vgw_header *header, const struct vgs_call *call) {
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

CUresult vgs_ring_record_length(const struct vgs_call *call, uint64_t *length) {
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

/* --- what may still be running --- */

#define STREAM_BITS 22 /* ids are below 4 Mi */

/* The state of one ring. Its thread writes it; any thread writes `done`, and an out-of-date value is harmless: it only
 * means that less is known to be done. */
static struct {
  _Alignas(64) uint64_t noted; /* atomic; calls that left work */
  uint64_t run;  /* atomic; number of the first of the latest calls that were all in one stream << 22 | stream */
  uint64_t done; /* atomic */
  uint64_t position,
      done_position; /* atomic; position of the last recorded call, and of the last one known to be done */
  uint32_t context;
} counts[VGW_RINGS_MAX];

static unsigned used;         /* atomic; rings below it may have work */
static uint32_t only_context; /* atomic */
static bool blind;            /* atomic */

#define LOAD(place) __atomic_load_n(&(place), __ATOMIC_ACQUIRE)
#define STORE(place, value) __atomic_store_n(&(place), value, __ATOMIC_RELEASE)

void vgs_progress_start(void) {
  for (unsigned i = 0; i < VGW_RINGS_MAX; i++) {
    STORE(counts[i].noted, 0);
    STORE(counts[i].run, 0);
    STORE(counts[i].done, 0);
    STORE(counts[i].position, 0);
    STORE(counts[i].done_position, 0);
    counts[i].context = 0;
  }
  STORE(used, 0);
  STORE(only_context, 0);
  STORE(blind, false);
}

void vgs_progress_set_unknown(void) { STORE(blind, true); }

bool vgs_progress_is_unknown(void) { return LOAD(blind); }

static void meet_context(unsigned ring, uint32_t context) {
  uint32_t none = 0;
  counts[ring].context = context;
  if (!__atomic_compare_exchange_n(&only_context, &none, context, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) &&
      none != context)
    STORE(blind, true);
}

void vgs_progress_add(unsigned ring, uint32_t context, uint32_t stream, uint64_t position) {
  if (!context)
    return; /* no work without a context */
  if (ring >= LOAD(used)) {
    unsigned before = LOAD(used);
    while (ring >= before &&
           !__atomic_compare_exchange_n(&used, &before, ring + 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
      continue;
  }
  uint64_t noted = counts[ring].noted + 1, run = counts[ring].run;
  if (counts[ring].context != context)
    meet_context(ring, context);
  if (noted == 1 || (run & ((1u << STREAM_BITS) - 1)) != stream)
    STORE(counts[ring].run, noted << STREAM_BITS | stream);
  STORE(counts[ring].position, position);
  STORE(counts[ring].noted, noted);
}

enum vgs_progress vgs_progress_query(uint32_t context, struct vgs_progress_marks *marks, uint32_t *stream) {
  enum vgs_progress found = VGS_PROGRESS_IDLE;
  marks->count = LOAD(used);
  for (unsigned i = 0; i < marks->count; i++) {
    marks->position[i] = LOAD(counts[i].position); /* read before `noted`, so that the position is not a later call's */
    uint64_t done = LOAD(counts[i].done), noted = marks->noted[i] = LOAD(counts[i].noted);
    if (noted <= done)
      continue;
    uint64_t run = LOAD(counts[i].run);
    uint32_t latest = run & ((1u << STREAM_BITS) - 1);
    if (run >> STREAM_BITS > done + 1 || (found == VGS_PROGRESS_ONE && *stream != latest))
      found = VGS_PROGRESS_MANY;
    else if (found == VGS_PROGRESS_IDLE)
      found = VGS_PROGRESS_ONE;
    *stream = latest;
  }
  return LOAD(blind) || (LOAD(only_context) && LOAD(only_context) != context) ? VGS_PROGRESS_MANY : found;
}

void vgs_progress_set_done(const struct vgs_progress_marks *marks) {
  for (unsigned i = 0; i < marks->count && !LOAD(blind); i++) {
    STORE(counts[i].done, marks->noted[i]);
    STORE(counts[i].done_position, marks->position[i]);
  }
}

bool vgs_progress_is_done(unsigned ring, uint64_t position) {
  return ring < LOAD(used) && position <= LOAD(counts[ring].done_position) && !LOAD(blind);
}
