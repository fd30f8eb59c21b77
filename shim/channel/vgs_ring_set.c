#define _GNU_SOURCE
#include "vgs_ring_set.h"
#include "vgs_api.h"
#include "vgs_memfd.h"
#include "vgs_record_stream.h"
#include "vgs_region.h"
#include "vgw_wire.h"
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { SPIN_US = 50, SPIN_MAX_US = 1000000, FEW_PROCESSORS = 2 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool offered;
static bool full;      /* no further ring can be opened; under lock */
static int processors; /* that this process may use */
static int spinners;   /* atomic */
static pthread_key_t thread_end;
static bool have_thread_end;

/* The processors that this process may use, which can be fewer than the machine has. */
static int processor_count(void) {
  cpu_set_t set; /* room for 1,024 processors; sched_getaffinity fails on larger machines */
  return sched_getaffinity(0, sizeof set, &set) ? FEW_PROCESSORS + 1 : CPU_COUNT(&set);
}

void vgs_ring_start(bool offered_now) {
  offered = offered_now;
  full = vgs_ring_state.in_region = false;
  /* With two processors or fewer a spinning client keeps the worker from running. */
  processors = processor_count();
  long spin_us = processors > FEW_PROCESSORS ? SPIN_US : 0;
  const char *wanted = secure_getenv("VGPU_SPIN_US");
  if (wanted && *wanted >= '0' && *wanted <= '9') {
    spin_us = strtol(wanted, NULL, 10);
    spin_us = spin_us > SPIN_MAX_US ? SPIN_MAX_US : spin_us;
  }
  vgs_ring_state.spin_ns = (uint64_t)spin_us * 1000;
  vgs_progress_start();
  __atomic_add_fetch(&vgs_ring_state.generation, 1, __ATOMIC_RELEASE);
}

/* Nobody who spins notices that the worker has ended, so the spin time is multiplied only up to a limit. */
uint64_t vgs_ring_spin_begin(void) {
  enum { PATIENCE = 40, MORE_MAX_NS = 20000000 };
  uint64_t more_ns = (PATIENCE - 1) * vgs_ring_state.spin_ns;
  if (2 * __atomic_add_fetch(&spinners, 1, __ATOMIC_RELAXED) > processors - 2)
    return 0;
  return more_ns < MORE_MAX_NS ? more_ns : MORE_MAX_NS;
}

void vgs_ring_spin_end(void) { __atomic_sub_fetch(&spinners, 1, __ATOMIC_RELAXED); }

void vgs_ring_use_region(void) {
  pthread_mutex_lock(&lock);
  offered = vgs_ring_state.in_region = true;
  pthread_mutex_unlock(&lock);
}

/* A thread ends: release its ring for another thread. If its session has ended meanwhile, the ring may already be
 * another thread's. */
static void thread_ends(void *ring) {
  pthread_mutex_lock(&lock);
  if (vgs_ring_owned.generation == __atomic_load_n(&vgs_ring_state.generation, __ATOMIC_RELAXED))
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
  unsigned count = __atomic_load_n(&vgs_ring_state.opened, __ATOMIC_RELAXED);
  for (unsigned i = 0; i < count; i++)
    if (!vgs_rings[i].taken) {
      vgs_rings[i].taken = true;
      return &vgs_rings[i];
    }
  if (count == VGW_RINGS_MAX || full)
    return NULL;
  struct vgw_ring *shared;
  full = vgs_ring_in_region() ? open_in_region(&shared, count) : open_memfd(&shared, count);
  if (full)
    return NULL;
  struct vgs_ring *ring =
      &vgs_rings[count]; /* zeroed except `inside`: a thread may be about to notice its session's end */
  memset(&ring->shared, 0, sizeof *ring - offsetof(struct vgs_ring, shared));
  ring->shared = shared;
  ring->taken = true;
  __atomic_store_n(&vgs_ring_state.opened, count + 1, __ATOMIC_RELEASE);
  return ring;
}

static struct vgs_ring *make_ready(void) {
  struct vgs_ring *own = NULL;
  pthread_mutex_lock(&lock);
  if (offered && !have_thread_end)
    have_thread_end = !pthread_key_create(&thread_end, thread_ends);
  if (offered && have_thread_end && (own = take_ring())) {
    vgs_ring_owned.generation = __atomic_load_n(&vgs_ring_state.generation, __ATOMIC_RELAXED);
    own->last.position = 0;
    pthread_setspecific(thread_end, own);
  }
  vgs_ring_owned.ring = own;
  pthread_mutex_unlock(&lock);
  return own;
}

struct vgs_ring *vgs_ring_ready(void) {
  struct vgs_ring *ring = vgs_ring_own();
  return ring ? ring : make_ready();
}

bool vgs_ring_active(void) { return vgs_stream_attached() && vgs_ring_ready(); }

/* --- the end --- */

bool vgs_ring_end(void) {
  pthread_mutex_lock(&lock);
  unsigned count = __atomic_load_n(&vgs_ring_state.opened, __ATOMIC_ACQUIRE);
  bool idle = true;
  offered = false;
  __atomic_add_fetch(&vgs_ring_state.generation, 1, __ATOMIC_SEQ_CST);
  for (unsigned i = 0; i < count; i++)
    idle &= !__atomic_load_n(&vgs_rings[i].inside, __ATOMIC_SEQ_CST);
  if (idle) {
    __atomic_store_n(&vgs_ring_state.opened, 0, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < count; i++) {
      if (!vgs_ring_in_region()) /* in a region, rings are unmapped with it */
        munmap(vgs_rings[i].shared, sizeof(struct vgw_ring));
      vgs_rings[i].shared = NULL;
    }
    if (have_thread_end)
      pthread_key_delete(thread_end);
    have_thread_end = false;
  }
  pthread_mutex_unlock(&lock);
  return idle;
}

void vgs_ring_abandon(void) {
  offered = false; /* MADV_DONTFORK: the child has no mappings */
  __atomic_store_n(&vgs_ring_state.opened, 0, __ATOMIC_RELEASE);
}
