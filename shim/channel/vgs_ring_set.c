#define _GNU_SOURCE
#include "vgs_api.h"
#include "vgs_memfd.h"
#include "vgs_record_stream.h"
#include "vgs_region.h"
#include "vgs_ring_internal.h"
#include "vgs_settle.h"
#include "vgs_touch.h"
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { SPIN_US = 50, SPIN_MAX_US = 1000000, FEW_PROCESSORS = 2 };
enum { NAP_NS = 20000, NAP_MAX_NS = 1000000, PLAUSIBLE_SPINS = 64, TRY_TURNS = 256 };

struct vgs_ring vgs_rings[VGW_RINGS_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned opened;     /* atomic */
static uint32_t generation; /* atomic; of the session, so that a thread's ring of an older one is not used */
static bool offered;
static bool full;      /* no further ring can be opened; under lock */
static bool in_region; /* set before the first call */
static int64_t spin_ns;
static int processors;
static pthread_key_t thread_end;
static bool have_thread_end;

static _Thread_local struct vgs_ring *own;
static _Thread_local uint32_t own_generation;

unsigned vgs_ring_count(void) { return __atomic_load_n(&opened, __ATOMIC_ACQUIRE); }
bool vgs_ring_any(void) { return vgs_ring_count(); }
bool vgs_ring_in_region(void) { return in_region; }
int64_t vgs_ring_spin_ns(void) { return spin_ns; }
int vgs_ring_processors(void) { return processors; }

/* That this process may use, which can be fewer than the machine has. */
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
  spin_ns = (int64_t)spin_us * 1000;
  vgs_settle_start();
  __atomic_add_fetch(&generation, 1, __ATOMIC_RELEASE);
}

void vgs_ring_use_region(void) {
  pthread_mutex_lock(&lock);
  offered = in_region = true;
  pthread_mutex_unlock(&lock);
}

/* A thread ends: its ring is free for another one. If its session has ended meanwhile, another thread may have it. */
static void thread_ends(void *ring) {
  pthread_mutex_lock(&lock);
  if (own_generation == __atomic_load_n(&generation, __ATOMIC_RELAXED))
    ((struct vgs_ring *)ring)->taken = false;
  pthread_mutex_unlock(&lock);
}

/* Have a ring in the session's share of the region served. */
static CUresult open_in_region(struct vgw_ring **shared, uint32_t index) {
  uint64_t offset;
  *shared = vgs_region_take_ring(sizeof **shared, &offset);
  return *shared ? vgs_send_vgpuRingOpenAt(offset, index) : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Map a sealed memfd, and have it served. */
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

/* A ring nobody uses, else a new one. NULL: there can be no more, and the socket serves this thread. Under lock.
 */
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
      &vgs_rings[count]; /* but not `inside`: a thread may still be finding that its session is over */
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

/* Between attempts to go on: true as long as there is hope. */
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
  long nap_ns = (long)NAP_NS * (1 + *turns / 64); /* as long as it has taken, and an eighth */
  nanosleep(&(struct timespec){0, nap_ns < NAP_MAX_NS ? nap_ns : NAP_MAX_NS}, NULL);
  return true;
}

/* Enter the ring if that is soon possible. VGS_RING_FREE: the caller is inside; else who is. */
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

/* Either we see that the session has ended, or whoever ends it sees us: both sides store, fence, load. */
bool vgs_ring_enter(struct vgs_ring *ring) {
  while (try_enter(ring)) /* who pushes is soon out again, or stands before a full ring, as we then would */
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
      if (!in_region) /* whose memory is the region's */
        munmap(vgs_rings[i].shared, sizeof(struct vgw_ring));
      vgs_rings[i].shared = NULL;
    }
    if (have_thread_end)
      pthread_key_delete(thread_end);
    have_thread_end = false;
    vgs_touch_forget();
  }
  pthread_mutex_unlock(&lock);
  return idle;
}

void vgs_ring_abandon(void) {
  offered = false; /* MADV_DONTFORK: the child has no mappings */
  __atomic_store_n(&opened, 0, __ATOMIC_RELEASE);
}
