#define _GNU_SOURCE
#include "vgs_ring_set.h"
#include "vgs_api.h"
#include "vgs_memfd.h"
#include "vgs_progress.h"
#include "vgs_record_stream.h"
#include "vgs_region.h"
#include "vgw_futex.h"
#include "vgw_wire.h"
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { SPIN_US = 50, SPIN_MAX_US = 1000000, FEW_PROCESSORS = 2 };
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

struct vgs_ring vgs_rings[VGW_RINGS_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned opened;     /* atomic */
static uint32_t generation; /* atomic; counts sessions, so that no thread uses a ring of an earlier one */
static bool offered;
static bool full;      /* no further ring can be opened; under lock */
static bool in_region; /* set before the first call */
static uint64_t spin_ns;
static int processors;
static pthread_key_t thread_end;
static bool have_thread_end;

static _Thread_local struct vgs_ring *own;
static _Thread_local uint32_t own_generation;

unsigned vgs_ring_count(void) { return __atomic_load_n(&opened, __ATOMIC_ACQUIRE); }
bool vgs_ring_any(void) { return vgs_ring_count(); }
bool vgs_ring_in_region(void) { return in_region; }
uint64_t vgs_ring_spin_ns(void) { return spin_ns; }
int vgs_ring_processors(void) { return processors; }

/* The processors that this process may use, which can be fewer than the machine has. */
static int processor_count(void) {
  cpu_set_t set; /* holds 1024; the call fails where there are more */
  return sched_getaffinity(0, sizeof set, &set) ? FEW_PROCESSORS + 1 : CPU_COUNT(&set);
}

void vgs_ring_start(bool offered_now) {
  offered = offered_now;
  full = in_region = false;
  /* With two processors or fewer a spinning client keeps the worker from running. */
  processors = processor_count();
  long spin_us = processors > FEW_PROCESSORS ? SPIN_US : 0;
  const char *wanted = secure_getenv("VGPU_SPIN_US");
  if (wanted && *wanted >= '0' && *wanted <= '9') {
    spin_us = strtol(wanted, NULL, 10);
    spin_us = spin_us > SPIN_MAX_US ? SPIN_MAX_US : spin_us;
  }
  spin_ns = (uint64_t)spin_us * 1000;
  vgs_progress_start();
  __atomic_add_fetch(&generation, 1, __ATOMIC_RELEASE);
}

void vgs_ring_use_region(void) {
  pthread_mutex_lock(&lock);
  offered = in_region = true;
  pthread_mutex_unlock(&lock);
}

/* A thread ends: release its ring for another thread. If its session has ended meanwhile, the ring may already be
 * another thread's. */
static void thread_ends(void *ring) {
  pthread_mutex_lock(&lock);
  if (own_generation == __atomic_load_n(&generation, __ATOMIC_RELAXED))
    ((struct vgs_ring *)ring)->taken = false;
  pthread_mutex_unlock(&lock);
}

/* Ask the worker to serve a ring in the session's share of the region. */
static CUresult open_in_region(struct vgw_ring **shared, uint32_t index) {
  uint64_t offset;
  *shared = vgs_region_reserve_ring(sizeof **shared, &offset);
  return *shared ? vgs_send_vgpuRingOpenAt(offset, index) : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Map a sealed memfd, and ask the worker to serve the ring in it. */
static CUresult open_memfd(struct vgw_ring **shared, uint32_t index) {
  int fd = vgs_memfd_create("vgpu-ring", sizeof(struct vgw_ring));
  if (fd < 0)
    return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  void *mapped = mmap(NULL, sizeof(struct vgw_ring), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
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

/* An unused ring, else a new one. NULL: no further ring can be opened; the socket serves this thread. Under lock. */
static struct vgs_ring *take_ring(void) {
  unsigned count = __atomic_load_n(&opened, __ATOMIC_RELAXED);
  for (unsigned i = 0; i < count; i++)
    if (!vgs_rings[i].taken) {
      vgs_rings[i].taken = true;
      return &vgs_rings[i];
    }
  if (count == VGW_RINGS_MAX || full)
    return NULL;
  struct vgw_ring *shared;
  full = in_region ? open_in_region(&shared, count) : open_memfd(&shared, count);
  if (full)
    return NULL;
  struct vgs_ring *ring =
      &vgs_rings[count]; /* zeroed except `inside`: a thread may be about to notice its session's end */
  memset(&ring->shared, 0, sizeof *ring - offsetof(struct vgs_ring, shared));
  ring->shared = shared;
  ring->taken = true;
  __atomic_store_n(&opened, count + 1, __ATOMIC_RELEASE);
  return ring;
}

static struct vgs_ring *make_ready(void) {
  own = NULL;
  pthread_mutex_lock(&lock);
  if (offered && !have_thread_end)
    have_thread_end = !pthread_key_create(&thread_end, thread_ends);
  if (offered && have_thread_end && (own = take_ring())) {
    own_generation = __atomic_load_n(&generation, __ATOMIC_RELAXED);
    own->last.position = 0;
    pthread_setspecific(thread_end, own);
  }
  pthread_mutex_unlock(&lock);
  return own;
}

struct vgs_ring *vgs_ring_ready(void) {
  struct vgs_ring *ring = own;
  return ring && own_generation == __atomic_load_n(&generation, __ATOMIC_ACQUIRE) ? ring : make_ready();
}

/* Called between attempts; false when it is not worth waiting any longer. */
bool vgs_ring_nap(int *turns) {
  if (++*turns < PLAUSIBLE_SPINS && spin_ns) {
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
    if (spin_ns && turns < PLAUSIBLE_SPINS)
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
  return own_generation == __atomic_load_n(&generation, __ATOMIC_SEQ_CST);
}

struct vgs_ring *vgs_ring_enter_own(void) {
  struct vgs_ring *ring = own;
  if (!ring || vgs_ring_enter(ring))
    return ring;
  vgs_ring_leave(ring);
  return NULL;
}

bool vgs_ring_try_enter(struct vgs_ring *ring) { return !try_enter(ring); }

void vgs_ring_leave(struct vgs_ring *ring) { __atomic_store_n(&ring->inside, VGS_RING_FREE, __ATOMIC_RELEASE); }

bool vgs_ring_active(void) { return vgs_stream_attached() && vgs_ring_ready(); }

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

/* Room for `nbytes` in one piece, after padding to the ring's beginning if need be. NULL: the session is over. */
uint8_t *vgs_ring_reserve(struct vgs_ring *ring, uint64_t nbytes) {
  struct vgw_ring *shared = ring->shared;
  uint64_t place = ring->tail % VGW_RING_NBYTES;
  bool anew = ring->head == ring->tail && place >= REUSED_NBYTES && nbytes <= place;
  uint64_t padding = anew || VGW_RING_NBYTES - place < nbytes ? VGW_RING_NBYTES - place : 0;
  for (int turns = -1; ring->tail + padding + nbytes - ring->head > VGW_RING_NBYTES;) {
    if (turns >= 0 && !vgs_ring_nap(&turns))
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

/* Make what was written visible, and wake the worker's thread if it sleeps. */
void vgs_ring_publish(struct vgs_ring *ring, uint64_t nbytes) {
  struct vgw_ring *shared = ring->shared;
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

/* --- the end --- */

bool vgs_ring_end(void) {
  pthread_mutex_lock(&lock);
  unsigned count = __atomic_load_n(&opened, __ATOMIC_ACQUIRE);
  bool idle = true;
  offered = false;
  __atomic_add_fetch(&generation, 1, __ATOMIC_SEQ_CST);
  for (unsigned i = 0; i < count; i++)
    idle &= !__atomic_load_n(&vgs_rings[i].inside, __ATOMIC_SEQ_CST);
  if (idle) {
    __atomic_store_n(&opened, 0, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < count; i++) {
      if (!in_region) /* in a region, rings are unmapped with it */
        munmap(vgs_rings[i].shared, sizeof(struct vgw_ring));
      vgs_rings[i].shared = NULL;
    }
    if (have_thread_end)
      pthread_key_delete(thread_end);
    have_thread_end = false;
    vgs_touch_clear();
  }
  pthread_mutex_unlock(&lock);
  return idle;
}

void vgs_ring_abandon(void) {
  offered = false; /* MADV_DONTFORK: the child has no mappings */
  __atomic_store_n(&opened, 0, __ATOMIC_RELEASE);
}
