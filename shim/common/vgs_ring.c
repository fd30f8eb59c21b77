#define _GNU_SOURCE
#include "vgs_ring.h"
#include "vgs_api.h"
#include "vgs_log.h"
#include "vgs_record_stream.h"
#include "vgs_region.h"
#include "vgs_settle.h"
#include "vgs_touch.h"
#include "vgw_futex.h"
#include "vgw_ring.h"
#include "vgw_wire.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { POPULATE_NBYTES = 256 << 10 };
enum { SPIN_US = 50, SPIN_MAX_US = 1000000, NAP_NS = 20000, NAP_MAX_NS = 1000000, CHECK_MS = 20, PLAUSIBLE_SPINS = 64 };
enum { REGION_NAPS_NS = 1000000 }; /* how long a client naps for a reply in a region before it asks to be told */

struct ring {
  struct vgw_ring *shared; /* NULL: not open */
  uint64_t tail;
  uint64_t populated; /* bytes of records that have pages */
  uint64_t head;      /* the worker's, as last read: its line is fetched only when the ring seems full */
  uint64_t pushed;    /* records */
  uint64_t returned;  /* atomic; records whose call has returned: what other rings may have to wait for */
  uint32_t sequence;
  uint32_t woken; /* in a region: the sleep of the worker's that we ended last */
  bool taken;     /* by a thread; under rings_lock */
  int inside;     /* atomic; its thread is in a call */
};

static pthread_mutex_t rings_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ring rings[VGW_RINGS_MAX];
static unsigned opened;     /* atomic; rings[0..opened) may be open */
static uint32_t generation; /* atomic; of the session, so that a thread's ring of an older one is not used */
static bool offered;
static bool full;      /* no further ring can be opened; under rings_lock */
static bool in_region; /* the other side is another machine: no descriptors, no futex */
static int64_t spin_ns;
static pthread_key_t thread_end;
static bool have_thread_end;

static _Thread_local struct ring *own;
static _Thread_local uint32_t own_generation;

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void relax(void) { __builtin_ia32_pause(); }

void vgs_ring_start(bool offered_now) {
  offered = offered_now;
  full = in_region = false;
  /* With two processors or fewer a spinning client keeps the worker from running. */
  long spin_us = sysconf(_SC_NPROCESSORS_ONLN) > 2 ? SPIN_US : 0;
  const char *wanted = getenv("VGPU_SPIN_US");
  if (wanted && *wanted >= '0' && *wanted <= '9') {
    spin_us = strtol(wanted, NULL, 10);
    spin_us = spin_us > SPIN_MAX_US ? SPIN_MAX_US : spin_us;
  }
  spin_ns = (int64_t)spin_us * 1000;
  vgs_settle_start();
  __atomic_add_fetch(&generation, 1, __ATOMIC_RELEASE);
}

void vgs_ring_use_region(void) {
  pthread_mutex_lock(&rings_lock);
  offered = in_region = true;
  pthread_mutex_unlock(&rings_lock);
}

/* A thread ends: its ring is free for another one. If its session has ended meanwhile, another thread may have it. */
static void thread_ends(void *ring) {
  pthread_mutex_lock(&rings_lock);
  if (own_generation == __atomic_load_n(&generation, __ATOMIC_RELAXED))
    ((struct ring *)ring)->taken = false;
  pthread_mutex_unlock(&rings_lock);
}

/* Have a ring in the session's share of the region served. */
static CUresult open_in_region(struct vgw_ring **shared, uint32_t index) {
  uint64_t offset;
  *shared = vgs_region_take_ring(sizeof **shared, &offset);
  return *shared ? vgs_send_vgpuRingOpenAt(offset, index) : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Map a sealed memfd, as the worker demands, and have it served. */
static CUresult open_memfd(struct vgw_ring **shared, uint32_t index) {
  int fd = memfd_create("vgpu-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0)
    return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  void *mapped = MAP_FAILED;
  if (!ftruncate(fd, sizeof(struct vgw_ring)) && !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))
    mapped = mmap(NULL, sizeof(struct vgw_ring), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (mapped != MAP_FAILED) {
    madvise(mapped, sizeof(struct vgw_ring), MADV_DONTFORK);
    result = vgs_send_vgpuRingOpen(index, fd);
    if (result)
      munmap(mapped, sizeof(struct vgw_ring));
  }
  close(fd);
  *shared = mapped;
  return result;
}

/* A ring nobody uses, else a new one. NULL: there can be no more, and the socket serves this thread. Under rings_lock.
 */
static struct ring *take_ring(void) {
  unsigned count = __atomic_load_n(&opened, __ATOMIC_RELAXED);
  for (unsigned i = 0; i < count; i++)
    if (!rings[i].taken) {
      rings[i].taken = true;
      return &rings[i];
    }
  if (count == VGW_RINGS_MAX || full)
    return NULL;
  struct vgw_ring *shared;
  full = in_region ? open_in_region(&shared, count) : open_memfd(&shared, count);
  if (full)
    return NULL;
  rings[count] = (struct ring){.shared = shared, .taken = true};
  __atomic_store_n(&opened, count + 1, __ATOMIC_RELEASE);
  return &rings[count];
}

bool vgs_ring_ready(void) {
  if (own && own_generation == __atomic_load_n(&generation, __ATOMIC_ACQUIRE))
    return true;
  own = NULL;
  pthread_mutex_lock(&rings_lock);
  if (offered && !have_thread_end)
    have_thread_end = !pthread_key_create(&thread_end, thread_ends);
  if (offered && have_thread_end && (own = take_ring())) {
    own_generation = __atomic_load_n(&generation, __ATOMIC_RELAXED);
    pthread_setspecific(thread_end, own);
  }
  pthread_mutex_unlock(&rings_lock);
  return own;
}

bool vgs_ring_any(void) { return __atomic_load_n(&opened, __ATOMIC_ACQUIRE); }

/* Between attempts to go on: true as long as there is hope. */
static bool nap(int *turns) {
  if (++*turns < PLAUSIBLE_SPINS && spin_ns) {
    relax();
    return true;
  }
  if (vgs_stream_error())
    return false;
  if (*turns % 512 == 0 && vgs_stream_peer_gone()) {
    vgs_stream_fail(CUDA_ERROR_DEVICE_UNAVAILABLE, "the worker closed the connection");
    return false;
  }
  long nap_ns = (long)NAP_NS * (1 + *turns / 64); /* as long as it has taken, and an eighth */
  nanosleep(&(struct timespec){0, nap_ns < NAP_MAX_NS ? nap_ns : NAP_MAX_NS}, NULL);
  return true;
}

/* Room for `nbytes` in one piece, after padding to the ring's beginning if need be. NULL: the session is over. */
static uint8_t *reserve(struct ring *ring, uint64_t nbytes) {
  struct vgw_ring *shared = ring->shared;
  uint64_t place = ring->tail % VGW_RING_NBYTES;
  uint64_t padding = VGW_RING_NBYTES - place < nbytes ? VGW_RING_NBYTES - place : 0;
  for (int turns = -1; ring->tail + padding + nbytes - ring->head > VGW_RING_NBYTES;) {
    if (turns >= 0 && !nap(&turns))
      return NULL;
    turns = turns < 0 ? 0 : turns;
    /* head: stored (release) by the worker once it needs the bytes no more */
    ring->head = atomic_load_explicit(&shared->head, memory_order_acquire);
  }
  if (padding) {
    struct vgw_header filler = {.length = (uint32_t)padding, .opcode = VGW_RING_PADDING};
    memcpy(shared->records + place, &filler, padding < sizeof filler ? padding : sizeof filler);
    ring->tail += padding;
    place = 0;
  }
  return shared->records + place;
}

/* The worker's thread sleeps or is about to. In a region its word is the number of that sleep, and one message ends it,
 * however many records are published meanwhile. */
static void wake_worker(struct ring *ring, uint32_t waits) {
  if (!in_region) {
    atomic_fetch_add_explicit(&ring->shared->doorbell, 1, memory_order_release);
    vgw_futex_wake(&ring->shared->doorbell);
  } else if (waits != ring->woken) {
    ring->woken = waits;
    vgs_send_vgpuRingWake((uint32_t)(ring - rings),
                          false); /* if it fails the session is over, as the caller will see */
  }
}

/* Make what was written visible, and wake the worker's thread if it sleeps. */
static void publish(struct ring *ring, uint64_t nbytes) {
  struct vgw_ring *shared = ring->shared;
  ring->tail += nbytes;
  ring->pushed++;
  /* Either the worker sees the new tail before it sleeps, or we see that it is about to: both sides store, fence, load.
   * An exchange is both store and fence, and cheaper than the two. */
  atomic_exchange_explicit(&shared->tail, ring->tail, memory_order_seq_cst);
  uint32_t waits = atomic_load_explicit(&shared->worker_waits, memory_order_relaxed);
  if (waits)
    wake_worker(ring, waits);
}

static CUresult push_fence(struct ring *ring, unsigned other, uint64_t executed) {
  struct vgw_req_vgpuRingFence fence = {.executed = executed, .ring = other};
  struct vgw_header header = {.length = sizeof header + sizeof fence, .opcode = VGW_OP_vgpuRingFence};
  uint8_t *at = reserve(ring, header.length);
  if (!at)
    return vgs_stream_error();
  memcpy(at, &header, sizeof header);
  memcpy(at + sizeof header, &fence, sizeof fence);
  publish(ring, header.length);
  return CUDA_SUCCESS;
}

/* `ring` NULL: a fence on the socket. It is waited for, which keeps nobody else on the socket waiting: what it waits
 * for may itself wait for a host function, whose end comes that way. */
static CUresult fence_on(struct ring *ring, unsigned other, uint64_t position) {
  struct ring *r = &rings[other];
  if (r == ring || other >= __atomic_load_n(&opened, __ATOMIC_ACQUIRE) ||
      atomic_load_explicit(&r->shared->executed, memory_order_acquire) >= position)
    return CUDA_SUCCESS;
  return ring ? push_fence(ring, other, position) : vgs_send_vgpuRingFence(position, other, true);
}

/* Wait, in the worker, for what this call must not overtake. `before` becomes what it comes after. */
static CUresult push_fences(struct ring *ring, const struct vgs_call *call, uint64_t before[]) {
  unsigned count = __atomic_load_n(&opened, __ATOMIC_ACQUIRE);
  CUresult result = CUDA_SUCCESS;
  before[0] = before[1] = VGS_TOUCH_ALONE;
  if (count <= (ring ? 1 : 0))
    return result;
  bool all = !call->touched_count;
  uint64_t legacy = vgs_touch_entry(VGW_KIND_STREAM, 0);
  before[0] = legacy;
  all |= vgs_touch_of(legacy).mixed;
  for (uint32_t i = 0; i < call->touched_count; i++) {
    before[i] = vgs_touch_entry(call->touched[i].kind, call->touched[i].id);
    all |= (call->touched[i].kind == VGW_KIND_STREAM && call->touched[i].id == 0) || vgs_touch_of(before[i]).mixed;
  }
  if (all) {
    for (unsigned i = 0; i < count && !result; i++)
      result = fence_on(ring, i, __atomic_load_n(&rings[i].returned, __ATOMIC_ACQUIRE));
    return result;
  }
  for (uint32_t i = 0; i < call->touched_count && !result; i++) {
    if (before[i])
      result = fence_on(ring, vgs_touch_of(before[i]).ring, vgs_touch_of(before[i]).position);
    if (!result && call->touched[i].kind == VGW_KIND_STREAM && legacy)
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
  return push_fences(NULL, call, before);
}

/* A call was pushed: later calls that touch the same come after it. Waiting calls that leave no work behind are over
 * when they return. */
static CUresult note(struct ring *ring, const struct vgs_call *call, const uint64_t before[]) {
  struct vgs_touch touch = {.ring = (unsigned)(ring - rings), .position = ring->pushed};
  CUresult result = CUDA_SUCCESS;
  for (uint32_t i = 0; i < call->touched_count && !result; i++) {
    result = vgs_touch_set(call->touched[i].kind, call->touched[i].id, before[i], touch);
    if (call->touched[i].kind == VGW_KIND_STREAM)
      vgs_settle_note(touch.ring, vgs_thread_context_id, call->touched[i].id);
  }
  if (!call->touched_count) {
    result = vgs_touch_set(VGW_KIND_STREAM, 0, before[0], touch);
    vgs_settle_note(touch.ring, vgs_thread_context_id, 0);
  }
  return result;
}

/* Pages for the next part of the ring at once: one fault each would be a fifth of a launch's time. */
static void populate(struct ring *ring) {
  uint64_t nbytes = VGW_RING_NBYTES - ring->populated < POPULATE_NBYTES ? VGW_RING_NBYTES - ring->populated
                                                                        : (uint64_t)POPULATE_NBYTES;
  if (!in_region) /* whose pages are there; kernels before 5.14 refuse, and the faults come one by one */
    madvise(ring->shared->records + ring->populated, nbytes, MADV_POPULATE_WRITE);
  ring->populated += nbytes;
}

static void write_record(uint8_t *at, const struct vgw_header *header, const struct vgs_call *call) {
  memcpy(at, header, sizeof *header);
  at += sizeof *header;
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

/* In a region no word wakes us: nap, ever longer, then have the worker answer on the socket when it has replied. */
static CUresult wait_reply_in_region(struct ring *ring, uint32_t sequence) {
  int64_t begun_ns = now_ns();
  for (unsigned turns = 0;; turns++) {
    /* reply: stored (release) by the worker after the reply's bytes */
    if (atomic_load_explicit(&ring->shared->reply, memory_order_acquire) == sequence)
      return CUDA_SUCCESS;
    if (vgs_stream_error())
      return vgs_stream_error();
    if (turns % 64 && spin_ns) { /* look at the clock now and then */
      relax();
      continue;
    }
    int64_t waited_ns = now_ns() - begun_ns;
    if (waited_ns < spin_ns)
      continue;
    if (waited_ns > REGION_NAPS_NS) {
      CUresult result = vgs_send_vgpuRingWait((uint32_t)(ring - rings), sequence);
      if (result && vgs_stream_error())
        return result; /* any other error was some queued call's: the reply will say it, too */
      continue;
    }
    nanosleep(&(struct timespec){0, NAP_NS}, NULL);
  }
}

/* Sleep until the reply to `sequence` lies in the ring. */
static CUresult wait_reply(struct ring *ring, uint32_t sequence) {
  struct vgw_ring *shared = ring->shared;
  int64_t until = spin_ns ? now_ns() + spin_ns : 0;
  unsigned turns = 0;
  for (;;) {
    /* reply: stored (release) by the worker after the reply's bytes */
    uint32_t seen = atomic_load_explicit(&shared->reply, memory_order_acquire);
    if (seen == sequence)
      return CUDA_SUCCESS;
    if (vgs_stream_error())
      return vgs_stream_error();
    if (until) {
      relax(); /* one at a time: on recent processors it takes as long as the word takes to arrive */
      if (++turns % 64 == 0 && now_ns() > until)
        until = 0;
      continue;
    }
    atomic_store_explicit(&shared->client_waits, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst); /* pairs with the worker's fence between `reply` and `client_waits` */
    if (atomic_load_explicit(&shared->reply, memory_order_acquire) == seen &&
        vgw_futex_wait(&shared->reply, seen, CHECK_MS) == -ETIMEDOUT && vgs_stream_peer_gone())
      vgs_stream_fail(CUDA_ERROR_DEVICE_UNAVAILABLE, "the worker closed the connection");
    atomic_store_explicit(&shared->client_waits, 0, memory_order_relaxed);
  }
}

/* Copy the reply out. Its lengths are the worker's word: checked against our buffers. */
static CUresult take_reply(struct ring *ring, struct vgs_call *call, uint32_t sequence, bool *output) {
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
  *output = header.flags & VGW_OUTPUT_PENDING;
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

static CUresult call_inside(struct ring *ring, struct vgs_call *call, bool wait, bool *output) {
  uint64_t length = sizeof(struct vgw_header) + vgw_pad8(call->fixed_nbytes);
  for (uint32_t i = 0; i < call->part_count; i++) {
    if (call->parts[i].iov_len > VGW_RING_RECORD_NBYTES)
      return CUDA_ERROR_INVALID_VALUE;
    length += vgw_pad8(call->parts[i].iov_len);
  }
  if (length > VGW_RING_RECORD_NBYTES)
    return CUDA_ERROR_INVALID_VALUE;
  uint64_t before[2];
  CUresult result = push_fences(ring, call, before);
  if (result)
    return result;
  struct vgw_header header = {.length = (uint32_t)length,
                              .opcode = call->opcode,
                              .flags = wait ? VGW_WANT_REPLY : 0,
                              .context = vgs_thread_context_id};
  if (wait && !(header.sequence = ++ring->sequence))
    header.sequence = ++ring->sequence; /* 0 is what a fresh ring holds */
  uint8_t *at = reserve(ring, length);
  if (!at)
    return vgs_stream_error();
  if ((uint64_t)(at - ring->shared->records) + length > ring->populated)
    populate(ring);
  write_record(at, &header, call);
  publish(ring, length);
  /* The worker has read these lines last time round: fetch the next ones for writing before they are wanted. */
  uint8_t *next = ring->shared->records + ring->tail % VGW_RING_NBYTES;
  __builtin_prefetch(next, 1);
  __builtin_prefetch(next + 64, 1);
  if (!wait || (call->touched_count && !call->settled))
    result = note(ring, call, before);
  if (wait && !result) {
    result = in_region ? wait_reply_in_region(ring, header.sequence) : wait_reply(ring, header.sequence);
    if (!result)
      result = take_reply(ring, call, header.sequence, output);
  }
  __atomic_store_n(&ring->returned, ring->pushed, __ATOMIC_RELEASE);
  return result;
}

/* Between enter and leave the ring's memory stays. Either we see that the session has ended, or whoever ends it sees
 * us: both sides store, fence, load. */
static bool enter(struct ring *ring) {
  __atomic_exchange_n(&ring->inside, 1, __ATOMIC_SEQ_CST);
  return own_generation == __atomic_load_n(&generation, __ATOMIC_SEQ_CST);
}

static void leave(struct ring *ring) { __atomic_store_n(&ring->inside, 0, __ATOMIC_RELEASE); }

CUresult vgs_ring_call(struct vgs_call *call, bool wait, bool *output) {
  struct ring *ring = own;
  CUresult result = enter(ring)          ? call_inside(ring, call, wait, output)
                    : vgs_stream_error() ? vgs_stream_error()
                                         : CUDA_ERROR_DEINITIALIZED;
  leave(ring);
  return result;
}

bool vgs_ring_active(void) { return vgs_stream_attached() && vgs_ring_ready(); }
int64_t vgs_ring_spin_ns(void) { return spin_ns; }

uint32_t vgs_ring_notice(void) {
  struct ring *ring = own;
  uint32_t notice = VGW_NOTICE_FAILED;
  if (enter(ring))
    notice = atomic_load_explicit(&ring->shared->notice, memory_order_acquire);
  leave(ring);
  return notice;
}

bool vgs_ring_touched_last(uint32_t stream, uint64_t *entry) {
  *entry = vgs_touch_entry(VGW_KIND_STREAM, stream);
  struct vgs_touch last = vgs_touch_of(*entry);
  return own && !last.mixed && last.ring == (unsigned)(own - rings) && last.position == own->pushed;
}

bool vgs_ring_end(void) {
  pthread_mutex_lock(&rings_lock);
  unsigned count = __atomic_load_n(&opened, __ATOMIC_ACQUIRE);
  bool idle = true;
  offered = false;
  __atomic_add_fetch(&generation, 1, __ATOMIC_SEQ_CST);
  for (unsigned i = 0; i < count; i++)
    idle &= !__atomic_load_n(&rings[i].inside, __ATOMIC_SEQ_CST);
  if (idle) {
    __atomic_store_n(&opened, 0, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < count; i++) {
      if (!in_region) /* whose memory is the region's */
        munmap(rings[i].shared, sizeof(struct vgw_ring));
      rings[i].shared = NULL;
    }
    if (have_thread_end)
      pthread_key_delete(thread_end);
    have_thread_end = false;
    vgs_touch_forget();
  }
  pthread_mutex_unlock(&rings_lock);
  return idle;
}

void vgs_ring_abandon(void) {
  offered = false; /* MADV_DONTFORK: the child has no mappings */
  __atomic_store_n(&opened, 0, __ATOMIC_RELEASE);
}
