/* A thread's memory for kernels. What they may name, shared and local memory, parameters and the workspace of a
 * cooperative launch, is in a slot of the reachable range (vgx_sim_reach.h). Frames, which decide where a warp resumes,
 * are outside of it.
 *
 * Locking: `lock`, a leaf, for the table of slots. */
#define _GNU_SOURCE
#include "vgx_sim_scratch.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "vgx_sim_arena.h"
#include "vgx_sim_count.h"
#include "vgx_sim_green.h"
#include "vgx_sim_reach.h"

#define PAGE_NBYTES 4096ull
#define KEPT_NBYTES (64ull << 20) /* frames and local memory beyond this size are freed after the launch */
#define WORKSPACE_NBYTES 64ull
#define NO_SLOT UINT32_MAX

struct scratch {
  struct vgx_sim_thread thread;                        /* the first member: services get its address */
  uint64_t shared_nbytes, local_nbytes, frames_nbytes; /* accessible */
  uint32_t slot;
  uint32_t number; /* of the thread: %smid, if its launch may use all multiprocessors */
  uint64_t counters[VGX_SIM_COUNTERS];
  /* For an interleaved job; see vgx_sim_abi.h. */
  uint64_t places, last_place; /* last_place: 0, or the last that has memory */
  uint64_t place_stride, place_shared_nbytes, place_local_nbytes, place_frame_nbytes;
  uint8_t *more_frames; /* NULL: no place but the first */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool slot_in_use[VGX_SIM_SLOTS_MAX];
static const uint64_t never = 0; /* the generation of a range that is not known */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;

static uint8_t *slot_begin(uint32_t slot) { return (uint8_t *)(VGX_SIM_SLOTS_BEGIN + slot * VGX_SIM_SLOT_NBYTES); }

static bool map_idle(uint8_t *at, uint64_t nbytes, int fixed) {
  void *got = mmap(at, nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed, -1, 0);
  if (got != MAP_FAILED && got != at) { /* a kernel before 4.17 takes the address as a hint */
    munmap(got, nbytes);
    return false;
  }
  return got == at;
}

static uint32_t claim_slot(void) {
  uint32_t slot = NO_SLOT;
  pthread_mutex_lock(&lock);
  for (uint32_t i = 0; i < VGX_SIM_SLOTS_MAX && slot == NO_SLOT; i++)
    if (!slot_in_use[i] && map_idle(slot_begin(i), VGX_SIM_SLOT_NBYTES, MAP_FIXED_NOREPLACE)) {
      slot_in_use[i] = true;
      slot = i;
    }
  pthread_mutex_unlock(&lock);
  return slot;
}

static void release_slot(uint32_t slot) {
  munmap(slot_begin(slot), VGX_SIM_SLOT_NBYTES);
  pthread_mutex_lock(&lock);
  slot_in_use[slot] = false;
  pthread_mutex_unlock(&lock);
}

/* Frames lie between two inaccessible pages. NULL: memory is short. */
static uint8_t *map_frames(uint64_t nbytes) {
  uint8_t *got = mmap(NULL, nbytes + 2 * PAGE_NBYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (got == MAP_FAILED)
    return NULL;
  if (mprotect(got + PAGE_NBYTES, nbytes, PROT_READ | PROT_WRITE) != 0) {
    munmap(got, nbytes + 2 * PAGE_NBYTES);
    return NULL;
  }
  return got + PAGE_NBYTES;
}

static void unmap_frames(uint8_t *frames, uint64_t nbytes) { munmap(frames - PAGE_NBYTES, nbytes + 2 * PAGE_NBYTES); }

static void release_frames(struct scratch *s) {
  if (s->thread.frames)
    unmap_frames(s->thread.frames, s->frames_nbytes);
  s->thread.frames = NULL;
  s->frames_nbytes = 0;
}

static void destroy(void *argument) {
  struct scratch *s = argument;
  release_frames(s);
  release_slot(s->slot);
  free(s);
}

static void create_key(void) { pthread_key_create(&key, destroy); }

static struct scratch *of_thread(void) {
  pthread_once(&once, create_key);
  struct scratch *s = pthread_getspecific(key);
  if (s)
    return s;
  s = calloc(1, sizeof *s);
  if (!s)
    return NULL;
  s->slot = claim_slot();
  if (s->slot == NO_SLOT) {
    free(s);
    return NULL;
  }
  uint8_t *slot = slot_begin(s->slot);
  static uint32_t next_sm;
  s->number = __atomic_fetch_add(&next_sm, 1, __ATOMIC_RELAXED);
  s->thread.shared = slot + VGX_SIM_SLOT_SHARED;
  s->thread.local = slot + VGX_SIM_SLOT_LOCAL;
  s->thread.counters = s->counters;
  if (mprotect(slot + VGX_SIM_SLOT_PARAMS, VGX_SIM_PARAMS_NBYTES_MAX, PROT_READ | PROT_WRITE) != 0 ||
      pthread_setspecific(key, s) != 0) {
    destroy(s);
    return NULL;
  }
  return s;
}

/* Make the first `nbytes` at `base` accessible, and no page more. */
static bool resize(uint8_t *base, uint64_t *accessible, uint64_t nbytes) {
  uint64_t want = vgx_sim_round_up(nbytes, PAGE_NBYTES), have = *accessible;
  if (want > have && mprotect(base + have, want - have, PROT_READ | PROT_WRITE) != 0)
    return false;
  if (want < have && mprotect(base + want, have - want, PROT_NONE) != 0)
    return false;
  *accessible = want;
  return true;
}

static bool provide_frames(struct scratch *s, uint64_t nbytes) {
  if (s->thread.frames && nbytes <= s->frames_nbytes)
    return true;
  nbytes = vgx_sim_round_up(nbytes ? nbytes : 1, PAGE_NBYTES);
  release_frames(s);
  s->thread.frames = map_frames(nbytes);
  s->frames_nbytes = s->thread.frames ? nbytes : 0;
  return s->thread.frames != NULL;
}

static uint64_t more_nbytes(const struct scratch *s) {
  return vgx_sim_round_up(s->places * s->place_frame_nbytes, PAGE_NBYTES);
}

uint8_t *vgx_sim_scratch_another(struct vgx_sim_thread *thread, uint64_t place) {
  struct scratch *s = (struct scratch *)thread;
  uint64_t shared_nbytes = vgx_sim_round_up(s->place_shared_nbytes, PAGE_NBYTES);
  if (place >= s->places || (!s->more_frames && !(s->more_frames = map_frames(more_nbytes(s)))))
    return NULL;
  s->last_place = place > s->last_place ? place : s->last_place;
  if (mprotect(s->thread.shared + place * s->place_stride, shared_nbytes, PROT_READ | PROT_WRITE) != 0 ||
      !resize(s->thread.local, &s->local_nbytes, (s->last_place + 1) * s->place_local_nbytes))
    return NULL;
  return s->more_frames;
}

/* Free the memory of all places but the first. */
static void release_places(struct scratch *s) {
  if (!s->last_place)
    return;
  map_idle(s->thread.shared + s->place_stride, s->last_place * s->place_stride, MAP_FIXED);
  unmap_frames(s->more_frames, more_nbytes(s));
  s->more_frames = NULL;
  s->last_place = 0;
}

struct vgx_sim_thread *vgx_sim_scratch_prepare(const struct vgx_sim_job *job, struct vgx_sim_launch *launch) {
  struct scratch *s = of_thread();
  uint64_t params_nbytes = vgx_sim_round_up(job->params_nbytes, WORKSPACE_NBYTES);
  if (!s || job->local_nbytes > VGX_SIM_LOCAL_NBYTES_MAX ||
      params_nbytes > VGX_SIM_PARAMS_NBYTES_MAX - WORKSPACE_NBYTES ||
      !resize(s->thread.shared, &s->shared_nbytes, job->shared_nbytes) ||
      !resize(s->thread.local, &s->local_nbytes, job->local_nbytes) || !provide_frames(s, job->frame_nbytes))
    return NULL;
  s->thread.sm = vgx_sim_green_multiprocessor(job->green, s->number);
  s->places = job->launch.places;
  s->place_stride = vgx_sim_place_stride(&job->launch);
  s->place_shared_nbytes = job->shared_nbytes;
  s->place_local_nbytes = job->local_nbytes;
  s->place_frame_nbytes = job->frame_nbytes;
  uint8_t *area = slot_begin(s->slot) + VGX_SIM_SLOT_PARAMS;
  uint8_t *params = area + VGX_SIM_PARAMS_NBYTES_MAX - params_nbytes; /* a step past them faults */
  *launch = job->launch;
  if (job->params_nbytes)
    memcpy(params, job->launch.params, job->params_nbytes);
  launch->params = params;
  launch->workspace = NULL;
  if (job->cooperative) { /* where cooperative_groups' grid barrier lives: its size, then the barrier's word */
    const uint32_t workspace[4] = {sizeof workspace};
    launch->workspace = memcpy(area, workspace, sizeof workspace);
  }
  memset(s->counters, 0, sizeof s->counters);
  for (uint32_t i = 0; i < VGX_SIM_KNOWN_COUNT; i++)
    /* an empty range: it does not even hold address 0 */
    s->thread.known[i] = (struct vgx_sim_known){.begin = 1, .generation = &never};
  s->thread.known_shared_nbytes = 0;
  return &s->thread;
}

void vgx_sim_scratch_rest(void) {
  struct scratch *s = pthread_getspecific(key);
  if (s)
    release_places(s);
  if (s && s->frames_nbytes > KEPT_NBYTES)
    release_frames(s);
  if (s && s->local_nbytes > KEPT_NBYTES && map_idle(s->thread.local, s->local_nbytes, MAP_FIXED))
    s->local_nbytes = 0;
}
