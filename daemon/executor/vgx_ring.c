/* Rings (vgw_wire.h), in memory that the client passed or in the session's share of a region: each is served by a
 * thread of its own, which executes its records in order and may block in one.
 *
 * The memory is the client's to write at any time. A record is copied out before it is looked at; of one that carries
 * data only the header and the fixed fields, since nothing is decided by the bytes behind them. Replies are built
 * in private memory and copied, except the bytes of a long copy to the host, which are only ever written. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "vgw_clock.h"
#include "vgw_wire.h"
#include "vgx_custom.h"
#include "vgx_execute.h"
#include "vgx_memory.h"
#include "vgx_session.h"

#ifndef F_GET_SEALS
#define F_GET_SEALS 1034
#define F_SEAL_SHRINK 2
#endif

#define CHECK_MS 100          /* how often a sleeping thread looks whether the session has ended */
#define PREFETCHED_NBYTES 192 /* prefetched bytes of the next record: the size of a launch */
#define NAP_NS 20000
/* A ring's thread spins for PATIENCE times spin_us while its client polls a flag of the device (vgs_wait.c). */
#define PATIENCE 40
/* How long a remote ring's thread polls with short sleeps before it waits for a wake-up from the client. */
#define REMOTE_NAPS_NS 1000000

struct vgx_ring {
  struct vgw_ring *shared;
  struct vgx_session *session;
  uint64_t head;
  uint64_t
      tail; /* the client's tail as last read: reading it for every record would take its cache line from the client */
  uint32_t sleeps;     /* number of the thread's last sleep, in `worker_waits` while it sleeps */
  bool awaited;        /* the last record was a flag: the client continues when the device sets it */
  bool is_short;       /* the record at `head` is in `copy` */
  bool reply_is_short; /* if it fits, where the client looks for that, too */
  uint64_t copy[VGW_SHORT_NBYTES / 8];
  atomic_uint_least64_t
      fenced; /* the lowest position that a sleeping thread of another ring waits for; UINT64_MAX: none */
  _Atomic uint32_t fence_bell;    /* futex, private: those threads sleep on it */
  atomic_uint_least64_t executed; /* what fences compare with: the client could overwrite the shared word */

  /* In a region the client is another machine, which no futex reaches: both sides are woken by records on the socket.
   */
  bool remote;
  _Atomic uint32_t bell;    /* futex, private: rung by vgpuRingWake */
  _Atomic uint32_t replied; /* futex, private: sequence of the last reply */
  atomic_uint waiters;      /* threads in vgpuRingWait */
};

/* Sleep until the client rings, at most CHECK_MS. */
static void sleep_for_record(struct vgx_ring *ring) {
  struct vgw_ring *shared = ring->shared;
  _Atomic uint32_t *bell = ring->remote ? &ring->bell : &shared->doorbell;
  uint32_t heard = atomic_load_explicit(bell, memory_order_acquire);
  /* The client wakes this thread once for each sleep, so sleeps are numbered; 0: not asleep. */
  if (!++ring->sleeps)
    ring->sleeps = 1;
  atomic_store_explicit(&shared->worker_waits, ring->sleeps, memory_order_relaxed);
  atomic_thread_fence(memory_order_seq_cst); /* pairs with the client's exchange of `tail`, before `worker_waits` */
  if (atomic_load_explicit(&shared->tail, memory_order_acquire) == ring->head)
    vgw_futex_wait(bell, heard, CHECK_MS);
  atomic_store_explicit(&shared->worker_waits, 0, memory_order_relaxed);
}

static bool has_record(struct vgx_ring *ring) {
  /* tail: stored (release) by the client after the record's bytes */
  ring->tail = atomic_load_explicit(&ring->shared->tail, memory_order_acquire);
  return ring->tail != ring->head;
}

/* Poll an empty ring for `ns`. True: it has a record, or the session has ended. */
static bool spin(struct vgx_ring *ring, uint64_t ns, bool yields) {
  uint64_t until = vgw_now_ns() + ns;
  for (unsigned turns = 1; turns % 64 || vgw_now_ns() < until; turns++) {
    if (has_record(ring) || atomic_load(&ring->session->ended))
      return true;
    __builtin_ia32_pause();
    if (yields && turns % 64 == 0)
      sched_yield();
  }
  return false;
}

/* The client watches a word that the device will write and continues as soon as it changes: a wake-up takes about 40
 * us, much compared with a copy of a millisecond. As in vgs_wait.c, at most half of the processors spin, and a spinning
 * thread yields. */
static bool spin_with_client(struct vgx_ring *ring, uint64_t ns) {
  static atomic_int processors, spinners;
  if (!atomic_load(&processors)) {
    cpu_set_t set; /* room for 1,024 processors; sched_getaffinity fails on larger machines */
    atomic_store(&processors, sched_getaffinity(0, sizeof set, &set) ? CPU_SETSIZE : CPU_COUNT(&set));
  }
  bool found = 2 * (atomic_fetch_add(&spinners, 1) + 1) <= atomic_load(&processors) - 2 && spin(ring, ns, true);
  atomic_fetch_sub(&spinners, 1);
  return found;
}

/* Wait until the client has pushed something; false when the session has ended. Spinning is bounded by the options. */
static bool wait_for_record(struct vgx_ring *ring) {
  if (ring->tail != ring->head || has_record(ring)) /* before the clock is read: what follows is often there */
    return !atomic_load_explicit(&ring->session->ended, memory_order_relaxed);
  uint64_t spin_ns = (uint64_t)ring->session->options->spin_us * 1000;
  bool found = spin_ns && (spin(ring, spin_ns, false) || (ring->awaited && spin_with_client(ring, PATIENCE * spin_ns)));
  uint64_t naps_until = ring->remote && !found ? vgw_now_ns() + REMOTE_NAPS_NS : 0;
  while (!has_record(ring)) {
    if (atomic_load(&ring->session->ended))
      return false;
    if (naps_until && vgw_now_ns() < naps_until)
      nanosleep(&(struct timespec){0, NAP_NS}, NULL);
    else
      sleep_for_record(ring);
  }
  return true;
}

/* Copy the next record if it lies beside the client's words. The client may be about to replace it by a later one. */
static bool copy_short(struct vgx_ring *ring) {
  struct vgw_ring *shared = ring->shared;
  if (atomic_load_explicit(&shared->short_at, memory_order_acquire) != ring->head + 1)
    return false;
  for (int i = 0; i < VGW_SHORT_NBYTES / 8; i++)
    ring->copy[i] = atomic_load_explicit(&shared->short_record[i], memory_order_relaxed);
  atomic_thread_fence(memory_order_acquire); /* pairs with the client's fence before it changes the words */
  return atomic_load_explicit(&shared->short_at, memory_order_relaxed) == ring->head + 1;
}

/* Copy the next record's header out and check it against what has been pushed and what can lie in one piece. */
static bool next_header(struct vgx_ring *ring, struct vgw_header *header) {
  uint64_t pushed = ring->tail - ring->head;
  uint64_t place = ring->head % VGW_RING_NBYTES, in_one_piece = VGW_RING_NBYTES - place;
  if (pushed > VGW_RING_NBYTES || pushed % 8 || pushed < 8) {
    vgx_violation(ring->session, "position in a ring");
    return false;
  }
  if (in_one_piece < sizeof *header) { /* only 8 bytes are left before the end: they can only be padding */
    *header = (struct vgw_header){.length = (uint32_t)in_one_piece, .opcode = VGW_RING_PADDING};
    return true;
  }
  ring->is_short = copy_short(ring);
  memcpy(header, ring->is_short ? (const uint8_t *)ring->copy : ring->shared->records + place, sizeof *header);
  uint64_t most = pushed < in_one_piece ? pushed : in_one_piece;
  if (ring->is_short && most > sizeof ring->copy)
    most = sizeof ring->copy;
  if (header->opcode != VGW_RING_PADDING && most > VGW_RING_RECORD_NBYTES)
    most = VGW_RING_RECORD_NBYTES;
  if (header->length < sizeof *header || header->length > most || header->length % 8) {
    vgx_violation(ring->session, "record length in a ring");
    return false;
  }
  return true;
}

static void answer(struct executor_thread *t, const struct vgw_header *reply, const struct vgx_reply *out) {
  struct vgx_ring *ring = t->ring;
  struct vgw_ring *shared = ring->shared;
  bool is_short = ring->reply_is_short && reply->length <= sizeof shared->short_reply &&
                  reply->length == sizeof *reply + out->private_nbytes;
  uint8_t *at = is_short ? (uint8_t *)shared->short_reply : shared->replies;
  memcpy(at + sizeof *reply, out->record + sizeof *reply, out->private_nbytes);
  memcpy(at, reply, sizeof *reply);
  if (!is_short) /* sequences recur: the client must not take an earlier reply for this one */
    memset(shared->short_reply, 0, sizeof *reply);
  atomic_store_explicit(&shared->reply, reply->sequence, memory_order_release);
  if (ring->remote) {
    atomic_store(&ring->replied, reply->sequence); /* seq_cst: pairs with `waiters` in vgpuRingWait */
    if (atomic_load(&ring->waiters))
      vgw_futex_wake(&ring->replied);
    return;
  }
  atomic_thread_fence(memory_order_seq_cst); /* pairs with the client's fence between `client_waits` and `reply` */
  if (atomic_load_explicit(&shared->client_waits, memory_order_relaxed))
    vgw_futex_wake(&shared->reply);
}

/* Execute the record under the header; false ends the thread. */
static bool execute_record(struct executor_thread *t, const struct vgw_header *header) {
  struct vgx_ring *ring = t->ring;
  const struct vgx_operation *op = header->opcode < VGW_OP_COUNT ? &vgx_operations[header->opcode] : NULL;
  if (!op || !op->dispatch || header->flags & VGW_HAS_FD || op->flags & VGX_NOT_IN_RING) {
    vgx_violation(ring->session, "opcode in a ring");
    return false;
  }
  const uint8_t *at =
      ring->is_short ? (const uint8_t *)ring->copy : ring->shared->records + ring->head % VGW_RING_NBYTES;
  at += sizeof *header;
  ring->reply_is_short = header->flags & VGW_SHORT_REPLY;
  uint64_t body_nbytes = header->length - sizeof *header, copied = body_nbytes;
  uint64_t decided = op->fixed_nbytes + (header->flags & VGW_CORRELATED ? sizeof(uint64_t) : 0);
  if (op->flags & VGX_DATA && decided < body_nbytes)
    copied = decided;
  if (copied > VGW_RECORD_NBYTES)
    return false; /* impossible, because a ring's records are shorter */
  memcpy(t->record, at, copied);
  struct vgw_cursor in = {.cur = t->record, .end = t->record + copied};
  if (copied < body_nbytes) {
    in.more = at + copied;
    in.more_end = at + body_nbytes;
  }
  vgx_execute(t, header, &in, op);
  return !atomic_load(&ring->session->ended);
}

/* The next record is on its way from the client's processor while this one is executed. Lines behind the tail, which
 * the client is about to write, are left to it. */
static void prefetch_next(const struct vgx_ring *ring, uint32_t length) {
  const uint8_t *next = ring->shared->records + (ring->head + length) % VGW_RING_NBYTES;
  uint64_t pushed = ring->tail - ring->head;
  for (uint64_t offset = 0; offset < PREFETCHED_NBYTES && length + offset < pushed; offset += 64)
    __builtin_prefetch(next + offset);
}

/* Wake the threads of other rings that wait for this one; those that must wait longer register again. */
static void end_fences(struct vgx_ring *ring) {
  atomic_store(&ring->fenced, UINT64_MAX);
  atomic_fetch_add(&ring->fence_bell, 1);
  vgw_futex_wake(&ring->fence_bell);
}

static void *serve_ring(void *argument) {
  struct executor_thread *t = argument;
  struct vgx_ring *ring = t->ring;
  struct vgw_header header;
  t->shared = ring->shared->replies;
  while (wait_for_record(ring) && next_header(ring, &header)) {
    bool padding = header.opcode == VGW_RING_PADDING;
    prefetch_next(ring, header.length);
    if (!padding && !execute_record(t, &header))
      break;
    ring->head += header.length;
    if (!padding) {
      ring->awaited = vgx_operations[header.opcode].flags & VGX_AWAITED;
      uint64_t executed = atomic_fetch_add(&ring->executed, 1) + 1; /* seq_cst: pairs with `fenced` in vgpuRingFence */
      atomic_store_explicit(&ring->shared->executed, executed, memory_order_release);
      if (executed >= atomic_load(&ring->fenced))
        end_fences(ring);
    }
    atomic_store_explicit(&ring->shared->head, ring->head, memory_order_release);
  }
  vgx_thread_end(t);
  return NULL;
}

/* Serve the ring at `mapped`, which is unmapped on failure. */
static CUresult start(struct vgx_session *s, uint32_t number, void *mapped, bool remote) {
  struct vgx_ring *ring = mapped == MAP_FAILED ? NULL : calloc(1, sizeof *ring);
  if (ring) {
    *ring = (struct vgx_ring){.shared = mapped, .session = s, .fenced = UINT64_MAX, .remote = remote};
    if (vgx_thread_start(s, serve_ring, ring, answer)) {
      atomic_store(&s->rings[number], ring);
      atomic_store(&s->ring_memory[number], ring->shared);
      if (atomic_load(&s->deferred))
        vgx_notice(s, VGW_NOTICE_FAILED, true);
      return CUDA_SUCCESS;
    }
    free(ring);
  }
  if (mapped != MAP_FAILED)
    munmap(mapped, sizeof(struct vgw_ring));
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult vgx_vgpuRingOpen(struct vgx_session *s, const struct vgw_req_vgpuRingOpen *req, int fd) {
  struct stat st;
  int seals = fcntl(fd, F_GET_SEALS);
  bool sound = req->ring < VGW_RINGS_MAX && !s->rings[req->ring] && s->options->features & VGX_FEATURE_RING &&
               fstat(fd, &st) == 0 && (uint64_t)st.st_size >= sizeof(struct vgw_ring) && seals >= 0 &&
               seals & F_SEAL_SHRINK;
  void *mapped = MAP_FAILED;
  if (sound)
    mapped = mmap(NULL, sizeof(struct vgw_ring), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (!sound)
    return vgx_violation(s, "ring");
  return start(s, req->ring, mapped, false);
}

CUresult vgx_vgpuRingOpenAt(struct vgx_session *s, const struct vgw_req_vgpuRingOpenAt *req) {
  if (req->ring >= VGW_RINGS_MAX || s->rings[req->ring])
    return vgx_violation(s, "ring");
  void *mapped = vgx_region_map(s, NULL, req->offset, sizeof(struct vgw_ring));
  if (mapped == MAP_FAILED && errno == EINVAL)
    return vgx_violation(s, "ring outside the session's memory");
  return start(s, req->ring, mapped, true);
}

static struct vgx_ring *remote_ring(struct vgx_session *s, uint32_t number) {
  struct vgx_ring *ring = number < VGW_RINGS_MAX ? s->rings[number] : NULL;
  if (ring && ring->remote)
    return ring;
  vgx_violation(s, "not a ring in a region");
  return NULL;
}

CUresult vgx_vgpuRingWake(struct vgx_session *s, const struct vgw_req_vgpuRingWake *req) {
  struct vgx_ring *ring = remote_ring(s, req->ring);
  if (!ring)
    return CUDA_ERROR_UNKNOWN;
  atomic_fetch_add(&ring->bell, 1);
  vgw_futex_wake(&ring->bell);
  return CUDA_SUCCESS;
}

CUresult vgx_vgpuRingWait(struct vgx_session *s, const struct vgw_req_vgpuRingWait *req) {
  struct vgx_ring *ring = remote_ring(s, req->ring);
  if (!ring)
    return CUDA_ERROR_UNKNOWN;
  atomic_fetch_add(&ring->waiters, 1);
  uint32_t seen;
  while ((seen = atomic_load(&ring->replied)) != req->reply && !atomic_load(&s->ended))
    vgw_futex_wait(&ring->replied, seen, CHECK_MS);
  atomic_fetch_sub(&ring->waiters, 1);
  return CUDA_SUCCESS;
}

CUresult vgx_vgpuRingFence(struct vgx_session *s, const struct vgw_req_vgpuRingFence *req) {
  struct vgx_ring *ring = req->ring < VGW_RINGS_MAX ? s->rings[req->ring] : NULL;
  if (!ring)
    return vgx_violation(s, "fence on a ring that is not open");
  uint64_t until = s->options->spin_us ? vgw_now_ns() + (uint64_t)s->options->spin_us * 1000 : 0;
  for (unsigned turns = 1; until && atomic_load(&ring->executed) < req->executed; turns++) {
    __builtin_ia32_pause();
    if (turns % 64 == 0 && vgw_now_ns() > until)
      until = 0;
  }
  for (;;) {
    /* read before the position is published, because the wait may end at once */
    uint32_t heard = atomic_load(&ring->fence_bell);
    uint64_t least = atomic_load(&ring->fenced);
    while (req->executed < least && !atomic_compare_exchange_weak(&ring->fenced, &least, req->executed))
      continue;
    if (atomic_load(&ring->executed) >= req->executed || atomic_load(&s->ended))
      return CUDA_SUCCESS;
    vgw_futex_wait(&ring->fence_bell, heard, CHECK_MS);
  }
}
