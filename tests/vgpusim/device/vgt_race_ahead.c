/* Random launches whose CTAs run ahead of their turn on several threads, compared with the same on one thread. */
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vgx_sim_watch.h"
#include "vgx_sim_watch_turn.h"

#define ADDRESS (VGX_SIM_REACH_BEGIN + (1ull << 20))
#define CTAS 24u
#define WARPS 4u
#define STEPS 40u /* of a CTA, at most */
#define THREADS_MAX 4u
#define FINDINGS_MAX 4096u

enum { LOADS, STORES, SHARED_LOADS, SHARED_STORES, LANES, ATOMICS, SHARED_ATOMICS, SITES };

struct made {
  struct vgx_sim_site site;
  struct vgx_sim_row row;
};

struct run {
  struct vgx_sim_services services; /* the first member */
  struct vgx_sim_watch watch;
  struct vgx_sim_launch launch;
  uint64_t seed, next;
  uint32_t stop, ahead_count; /* atomic */
  struct made sites[SITES];
};

struct runner {
  struct run *run;
  uint32_t number;
};

/* What is reported: a hash of each report, without the kernel's name. Reports come one after another. */
static uint64_t findings[2][FINDINGS_MAX];
static uint32_t finding_count[2], of_run;

static void keep(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const char *text = strstr(va_arg(arguments, const char *), "\"hazard\"");
  va_end(arguments);
  uint64_t hash = 1469598103934665603u;
  for (; text && *text; text++)
    hash = (hash ^ (uint8_t)*text) * 1099511628211u;
  if (finding_count[of_run] < FINDINGS_MAX)
    findings[of_run][finding_count[of_run]++] = hash;
}

static uint32_t next_random(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 33);
}

static void make_sites(struct made *sites) {
  static const uint32_t kinds[SITES] = {VGX_SIM_READ, VGX_SIM_WRITE,  VGX_SIM_READ,  VGX_SIM_WRITE,
                                        VGX_SIM_READ, VGX_SIM_ATOMIC, VGX_SIM_ATOMIC};
  static const char *const places[SITES] = {"0", "1", "2", "3", "4", "5", "6"};
  for (uint32_t i = 0; i < SITES; i++) {
    sites[i].row = (struct vgx_sim_row){.nbytes = 128};
    sites[i].site = (struct vgx_sim_site){.text = "",
                                          .place = places[i],
                                          .nbytes = 4,
                                          .align = 4,
                                          .kind = kinds[i],
                                          .steps = {4, 8, 16, 32, 64},
                                          .row_count = 1,
                                          .span_count = 1,
                                          .rows = &sites[i].row,
                                          .spans = &sites[i].row,
                                          .high = 124,
                                          .distinct = true,
                                          .pattern = kinds[i] <= VGX_SIM_WRITE ? 7 : 0};
  }
}

static void access_row(struct run *run, struct vgx_sim_thread *thread, uint32_t site, uint64_t base, uint32_t mask) {
  vgx_sim_serve_row(&run->services, thread, &run->sites[site].site, base, mask, NULL, 1);
}

static void access_lanes(struct run *run, struct vgx_sim_thread *thread, uint64_t *state) {
  uint64_t addresses[32];
  for (uint32_t lane = 0; lane < 32; lane++)
    addresses[lane] = ADDRESS + 4ull * (next_random(state) % (CTAS * WARPS * 32));
  uint32_t mask = next_random(state) | 1u;
  vgx_sim_serve_access(&run->services, thread, &run->sites[LANES].site, addresses, mask, NULL, NULL, UINT32_MAX, 1, 0);
}

static void sync(struct run *run, const struct vgx_sim_thread *thread, enum vgx_sim_sync what) {
  vgx_sim_serve_sync(&run->services, thread,
                     &(struct vgx_sim_sync_point){.site = &run->sites[0].site, .sync = what, .mask = UINT32_MAX});
}

static void meet(struct run *run, struct vgx_sim_thread *thread) {
  for (uint32_t resumes = 0; resumes < 2; resumes++)
    for (thread->warp = 0; thread->warp < WARPS; thread->warp++)
      sync(run, thread, resumes ? VGX_SIM_SYNC_RESUME : VGX_SIM_SYNC_WAIT);
}

/* What a CTA does depends on its number alone: mostly loads and what is its own, then sometimes anything. */
static void run_cta(struct run *run, struct vgx_sim_thread *thread) {
  uint64_t state = run->seed * 1000 + thread->cta[0], own = ADDRESS + 128ull * WARPS * thread->cta[0];
  uint32_t count = next_random(&state) % STEPS, racy = next_random(&state) % 4;
  for (uint32_t step = 0; step < count; step++) {
    bool late = step > count * 3 / 4;
    thread->warp = next_random(&state) % WARPS;
    uint32_t jump = next_random(&state) % (racy ? 16 : 1), what = next_random(&state) % (late ? 16 : 8);
    uint64_t row = own + 128 * (jump == 1 ? next_random(&state) % WARPS : thread->warp);
    uint64_t shared = (uint64_t)thread->shared + 128 * (jump == 2 ? next_random(&state) % WARPS : thread->warp);
    uint32_t mask = next_random(&state) % 4 ? UINT32_MAX : next_random(&state) | 1u;
    if (jump == 3)
      row = ADDRESS + 128 * (next_random(&state) % (CTAS * WARPS));
    if (next_random(&state) % 16 == 0)
      sched_yield();
    if (what < 2)
      access_row(run, thread, LOADS, row, mask);
    else if (what == 2 && racy)
      access_lanes(run, thread, &state);
    else if (what < 5)
      access_row(run, thread, what == 3 ? SHARED_LOADS : SHARED_STORES, shared, mask);
    else if (what == 5)
      access_row(run, thread, SHARED_ATOMICS, (uint64_t)thread->shared + 1024, UINT32_MAX);
    else if (what < 8)
      meet(run, thread);
    else if (what < 13)
      access_row(run, thread, STORES, row, mask);
    else if (what < 15)
      access_row(run, thread, ATOMICS, ADDRESS + 128 * CTAS * WARPS, UINT32_MAX);
    else
      sync(run, thread, VGX_SIM_SYNC_FENCE);
  }
}

static void *run_ctas(void *argument) {
  const struct runner *runner = argument;
  struct run *run = runner->run;
  struct vgx_sim_thread thread = {.number = runner->number, .shared = (uint8_t *)VGX_SIM_SLOTS_BEGIN};
  for (uint64_t cta; (cta = __atomic_fetch_add(&run->next, 1, __ATOMIC_RELAXED)) < CTAS;) {
    thread.cta[0] = (uint32_t)cta;
    run_cta(run, &thread);
    __atomic_add_fetch(&run->ahead_count, run->watch.threads[runner->number].ahead, __ATOMIC_RELAXED);
    vgx_sim_serve_end_cta(&run->services, &thread);
  }
  return NULL;
}

static uint32_t run_launch(uint64_t seed, uint32_t threads, uint32_t id, uint32_t *ahead_count) {
  static struct run run;
  char name[32];
  pthread_t others[THREADS_MAX];
  struct runner runners[THREADS_MAX];
  run = (struct run){.seed = seed, .launch = {.grid = {CTAS, 1, 1}, .block = {32 * WARPS, 1, 1}, .launch_id = id}};
  snprintf(name, sizeof name, "%u", id);
  make_sites(run.sites);
  run.launch.cta_count = CTAS;
  run.launch.shared_static_nbytes = 2048;
  run.launch.stop = &run.stop;
  vgx_sim_watch_begin(&run.watch, VGX_SIM_RACECHECK, name, &run.launch, false);
  run.watch.services = &run.services;
  run.watch.in_order = true;
  run.watch.log = keep;
  run.services.watch = &run.watch;
  for (uint32_t i = 0; i < threads; i++)
    runners[i] = (struct runner){&run, i};
  for (uint32_t i = 1; i < threads; i++)
    pthread_create(&others[i], NULL, run_ctas, &runners[i]);
  run_ctas(&runners[0]);
  for (uint32_t i = 1; i < threads; i++)
    pthread_join(others[i], NULL);
  uint32_t error_count = run.watch.error_count;
  vgx_sim_watch_end(&run.watch);
  *ahead_count += run.ahead_count;
  return error_count;
}

/* `first`: of the launches; so many that the reports of a process do not run out. Returns how many report something
 * else on several threads than on one. *reports: of all launches on one; *ahead: CTAs that have ended ahead of their
 * turn. */
uint32_t vgt_race_compare_threads(uint32_t first, uint32_t launches, uint32_t *reports, uint32_t *ahead) {
  uint32_t differing = 0, none = 0;
  for (uint32_t i = 0; i < launches; i++) {
    uint32_t errors[2];
    finding_count[0] = finding_count[1] = 0;
    for (of_run = 0; of_run < 2; of_run++)
      errors[of_run] = run_launch(first + i, of_run ? 2 + i % (THREADS_MAX - 1) : 1, 2000000 + 2 * i + of_run,
                                  of_run ? ahead : &none);
    bool same = errors[0] == errors[1] && finding_count[0] == finding_count[1] &&
                memcmp(findings[0], findings[1], finding_count[0] * sizeof findings[0][0]) == 0;
    differing += !same;
    *reports += finding_count[0];
  }
  return differing + none;
}
