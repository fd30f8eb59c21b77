/* The order in which a compiled kernel's warps run: takes CTAs, runs their warps, and opens barriers.
 *
 * The compiler emits a function that runs warps, and struct vgx_sim_code (vgx_sim_abi.h). A call of it is a round of a
 * CTA: each warp that does not wait runs until it waits or ends. Then the barriers that are complete open, and the next
 * round resumes the warps that waited at them. CTAs that may wait for each other, those of a cluster or of a
 * cooperative launch's grid, take turns of a round each on one thread, each in frames of its own. In other launches a
 * thread runs one CTA at a time unless that CTA waits; if all its CTAs wait, it starts one more, up to what the device
 * would run at once. So every CTA that another one waits for begins, on this thread or on another.
 *
 * Frames of a CTA: the tables, then what the warps have saved (codegen/emit_layout.py). They are out of reach of
 * kernels, which must not decide where a warp resumes; local memory, which kernels address, is elsewhere. */
#include "vgx_sim_schedule.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "vgw_cuda.h"
#include "vgx_sim_control_word.h"
#include "vgx_sim_fault.h"

#define WARP 32u
#define IDLE_ROUNDS 4u     /* rounds without progress before a thread starts another CTA */
#define SHARES 4u          /* a claim takes a fourth of what is left of a region, at most, */
#define GROWTH 4u          /* and a fourth of what has been claimed of it */
#define COUNTED_ROUNDS 16u /* rounds of CTAs after which their time is counted */
#define DEADLOCK "all warps wait at barriers that cannot complete"

/* MXCSR: exceptions masked, rounding to nearest; FLUSH: subnormals are zero, as inputs and as results. */
#define CONTROL_DEFAULT 0x1f80u
#define CONTROL_FLUSH 0x9fc0u

/* A barrier of a CTA. A warp that arrives adds to the first two members (codegen/emit_barrier.py). */
struct barrier {
  uint32_t arrived;  /* threads */
  uint32_t expected; /* threads; 0: all that have not ended */
  uint64_t votes;    /* votes of bar.red so far: the number of threads with a true predicate, and of all threads */
  uint64_t result;   /* the votes of the last round that is complete */
  uint64_t unused;
};
_Static_assert(sizeof(struct barrier) == 32, "emit_layout.py");

/* The state of a CTA that takes turns with others. */
struct turn {
  struct vgx_sim_thread thread; /* with frames and memory of its own */
  uint32_t live;                /* warps that have not ended */
};
_Static_assert(sizeof(struct turn) <= 384, "emit_layout.py");

/* The tables of a CTA. By warp: the barrier that it waits at (VGX_SIM_RUNNING, VGX_SIM_ENDED); the place that it
 * resumes at; whether it has arrived at its cluster's barrier (codegen/emit_cluster.py). */
struct tables {
  struct barrier *barriers;
  uint32_t *waits, *states, *arrivals;
};

static struct tables tables_of(const struct vgx_sim_code *code, const struct vgx_sim_thread *thread) {
  struct barrier *barriers = (struct barrier *)thread->frames;
  uint32_t *waits = (uint32_t *)(barriers + VGX_SIM_BARRIER_COUNT);
  return (struct tables){barriers, waits, waits + code->warp_count, waits + 2 * code->warp_count};
}

/* The state of the CTA and warp that this thread runs or ran last; it is still set after a fault. */
static _Thread_local const struct vgx_sim_thread *running;

void vgx_sim_schedule_init(const struct vgx_sim_thread *thread) { running = thread; }

const struct vgx_sim_thread *vgx_sim_schedule_running(void) { return running; }

/* What a kernel that was compiled quickly has run for is counted. Python waits for those that have used up their budget
 * (codegen/loader.py). */
static sem_t due;
static pthread_once_t due_once = PTHREAD_ONCE_INIT;
static _Thread_local uint64_t counted_ns; /* up to when this thread's time has been counted */

static void make_due(void) { sem_init(&due, 0, 0); }

void vgx_sim_schedule_wait(void) {
  pthread_once(&due_once, make_due);
  while (sem_wait(&due) < 0)
    ;
}

/* Of this thread's processor: how busy the host is does not matter. */
static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* No kick may end the kernel in here: the semaphore's only post would be lost, or pthread_once stay begun for ever. */
static void count_time(const struct vgx_sim_code *code) {
  struct vgx_sim_quick *quick = code->quick;
  if (!quick)
    return;
  uint64_t now = now_ns(), spent = now - counted_ns;
  counted_ns = now;
  vgx_sim_service_begin();
  uint64_t before = __atomic_fetch_add(&quick->spent_ns, spent, __ATOMIC_RELAXED);
  if (before < quick->budget_ns && before + spent >= quick->budget_ns) {
    pthread_once(&due_once, make_due);
    sem_post(&due);
  }
  vgx_sim_service_end();
}

static vgx_sim_warp_fn *warp_of(const struct vgx_sim_code *code) {
  return code->quick ? __atomic_load_n(&code->quick->warp, __ATOMIC_ACQUIRE) : code->warp;
}

static bool is_stopped(const struct vgx_sim_launch *launch) { return __atomic_load_n(launch->stop, __ATOMIC_RELAXED); }

static void fail(const struct vgx_sim_launch *launch) {
  launch->services->fail(launch->services, CUDA_ERROR_LAUNCH_FAILED, DEADLOCK, NULL, 0);
}

/* Clear the tables: all warps can run. */
static void start(const struct vgx_sim_code *code, const struct tables *t) {
  memset(t->barriers, 0, VGX_SIM_BARRIER_COUNT * sizeof *t->barriers + 3 * code->warp_count * sizeof *t->waits);
  for (uint32_t w = 0; w < code->warp_count; w++)
    t->waits[w] = VGX_SIM_RUNNING;
}

/* Open a barrier at which threads have arrived, if they are enough. */
static bool open_barrier(const struct vgx_sim_code *code, const struct tables *t, uint32_t number, uint32_t live) {
  struct barrier *b = &t->barriers[number];
  if (b->arrived < (b->expected ? (b->expected + WARP - 1) & -WARP : live * WARP))
    return false;
  b->arrived = 0;
  b->result = b->votes;
  b->votes = 0;
  for (uint32_t w = 0; w < code->warp_count; w++)
    if (t->waits[w] == number)
      t->waits[w] = VGX_SIM_RUNNING;
  return true;
}

/* Results of a round, as bits: a warp ran or can go on; a warp ended or a barrier opened. */
enum { MOVED = 1, WENT_ON = 2 };

/* Run one round; *live is the number of warps that have not ended. 0: no warp ran, and none can go on. */
static uint32_t run_round(const struct vgx_sim_code *code, const struct vgx_sim_launch *launch,
                          struct vgx_sim_thread *thread, const struct tables *t, uint32_t *live) {
  uint32_t ran = warp_of(code)(launch, thread, 0, 0);
  uint32_t left = *live - (ran & (VGX_SIM_RAN - 1));
  uint32_t did = ran ? MOVED : 0;
  if (left < *live)
    did |= WENT_ON;
  *live = left;
  for (uint32_t b = 0; left && b < VGX_SIM_BARRIER_COUNT; b++)
    if (t->barriers[b].arrived && open_barrier(code, t, b, left))
      did |= MOVED | WENT_ON;
  return did;
}

/* Run rounds until every warp has ended. False: the launch has failed. */
static bool run_with_barriers(const struct vgx_sim_code *code, const struct vgx_sim_launch *launch,
                              struct vgx_sim_thread *thread) {
  struct tables t = tables_of(code, thread);
  uint32_t live = code->warp_count, rounds = 0;
  start(code, &t);
  while (live) {
    if (!run_round(code, launch, thread, &t, &live)) {
      fail(launch);
      return false;
    }
    if (++rounds % COUNTED_ROUNDS == 0)
      count_time(code);
  }
  return true;
}

/* Every barrier is bar.sync 0 for all warps: the one at which a round ends is complete then, and nothing is counted. */
static void run_in_lockstep(const struct vgx_sim_code *code, const struct vgx_sim_launch *launch,
                            struct vgx_sim_thread *thread) {
  struct tables t = tables_of(code, thread);
  uint32_t live = code->warp_count, rounds = 0;
  start(code, &t);
  while (live) {
    live -= warp_of(code)(launch, thread, 0, 0) & (VGX_SIM_RAN - 1);
    if (++rounds % COUNTED_ROUNDS == 0)
      count_time(code);
  }
}

static void run_in_order(const struct vgx_sim_code *code, const struct vgx_sim_launch *launch,
                         struct vgx_sim_thread *thread) {
  vgx_sim_warp_fn *run = warp_of(code);
  for (uint32_t w = 0, warp_count = code->warp_count; w < warp_count; w++)
    run(launch, thread, 0, w);
}

/* The range [*first, *last) of CTAs, or clusters, that this thread runs next; false: none is left. */
static bool claim(const struct vgx_sim_code *code, const struct vgx_sim_launch *launch, uint64_t count, uint64_t chunk,
                  uint64_t *first, uint64_t *last) {
  count_time(code);
  *first = __atomic_fetch_add(launch->next_cta, chunk, __ATOMIC_RELAXED);
  if (*first >= count)
    return false;
  *last = count - *first < chunk ? count : *first + chunk;
  return true;
}

static bool claim_in_region(const struct vgx_sim_launch *launch, struct vgx_sim_region *region, uint64_t *first,
                            uint64_t *last) {
  uint64_t at = __atomic_load_n(&region->next, __ATOMIC_RELAXED), end;
  do {
    if (at >= region->end)
      return false;
    uint64_t left = region->end - at, share = left / SHARES, grown = (at - region->begin) / GROWTH;
    uint64_t chunk = share < grown ? share : grown;
    chunk = chunk < launch->cta_chunk ? launch->cta_chunk : chunk;
    end = left < chunk ? region->end : at + chunk;
  } while (!__atomic_compare_exchange_n(&region->next, &at, end, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  *first = at;
  *last = end;
  return true;
}

/* As `claim`, of CTAs that do not wait for later ones. Neighbouring CTAs usually touch neighbouring memory, and lines
 * at the border of what two threads write move between them; and the next launch touches the same memory again. So each
 * thread has a region, and takes CTAs of others' when its own has none left. It takes a share of what is left, so that
 * all end at about the same time, but no more than a part of what has been claimed: in some grids the first CTAs have
 * all the work. CTAs of a region begin in ascending order, and a thread that leaves its region goes to the next ones,
 * the first thread from the first region on: so the lowest CTA that has not ended is never without a thread. */
static bool claim_near(const struct vgx_sim_code *code, const struct vgx_sim_launch *launch, uint64_t *first,
                       uint64_t *last) {
  if (!launch->regions)
    return claim(code, launch, launch->cta_count, launch->cta_chunk, first, last);
  count_time(code);
  for (uint32_t i = 0; i < launch->region_count; i++)
    if (claim_in_region(launch, &launch->regions[(launch->region + i) % launch->region_count], first, last))
      return true;
  return false;
}

static void place(struct vgx_sim_thread *thread, const struct vgx_sim_launch *launch, uint64_t cta) {
  uint64_t row = cta / launch->grid[0];
  thread->cta[0] = (uint32_t)(cta % launch->grid[0]);
  thread->cta[1] = (uint32_t)(row % launch->grid[1]);
  thread->cta[2] = (uint32_t)(row / launch->grid[1]);
  thread->known_shared_nbytes = 0; /* a CTA's shared memory holds nothing yet */
}

/* Run CTAs of a kernel whose function runs as many as lie in one row. A watched kernel's are begun one by one. */
static void run_rows(const struct vgx_sim_code *code, const struct vgx_sim_launch *launch,
                     struct vgx_sim_thread *thread) {
  uint64_t first, last;
  while (claim_near(code, launch, &first, &last))
    for (uint64_t cta = first, count; cta < last; cta += count) {
      if (is_stopped(launch))
        return;
      place(thread, launch, cta);
      count = launch->grid[0] - thread->cta[0];
      count = launch->services->watch ? 1 : count < last - cta ? count : last - cta;
      warp_of(code)(launch, thread, (uint32_t)count, 0);
    }
}

/* Run CTAs one after the other. */
static void run_ctas(const struct vgx_sim_code *code, const struct vgx_sim_launch *launch,
                     struct vgx_sim_thread *thread) {
  uint64_t first, last;
  while (claim_near(code, launch, &first, &last))
    for (uint64_t cta = first; cta < last; cta++) {
      if (is_stopped(launch))
        return;
      place(thread, launch, cta);
      if (code->turns == VGX_SIM_LOCKSTEP)
        run_in_lockstep(code, launch, thread);
      else if (code->turns == VGX_SIM_IN_ORDER)
        run_in_order(code, launch, thread);
      else if (!run_with_barriers(code, launch, thread))
        return;
      if (launch->services->watch && !launch->services->end_cta(launch->services, thread))
        return;
    }
}

/* --- CTAs that take turns --- */

static struct turn *turn_of(const struct vgx_sim_code *code, struct vgx_sim_thread *thread, uint64_t i) {
  return (struct turn *)(thread->frames + i * code->frames_nbytes + code->turn);
}

/* Start `count` CTAs. `shared_stride`: from one CTA's shared memory to the next; 0: all have the same window. */
static void start_turns(const struct vgx_sim_code *code, struct vgx_sim_thread *thread, uint64_t count,
                        uint64_t shared_stride) {
  for (uint64_t i = 0; i < count; i++) {
    struct turn *turn = turn_of(code, thread, i);
    *turn = (struct turn){.thread = *thread, .live = code->warp_count};
    turn->thread.frames += i * code->frames_nbytes;
    turn->thread.local += i * code->locals_nbytes;
    turn->thread.shared += i * shared_stride;
    struct tables t = tables_of(code, &turn->thread);
    start(code, &t);
  }
}

static uint32_t take_turn(const struct vgx_sim_code *code, const struct vgx_sim_launch *launch, struct turn *turn) {
  static _Thread_local uint32_t rounds;
  struct tables t = tables_of(code, &turn->thread);
  running = &turn->thread;
  if (++rounds % COUNTED_ROUNDS == 0)
    count_time(code);
  return run_round(code, launch, &turn->thread, &t, &turn->live);
}

/* Run all CTAs of a cooperative launch. */
static void run_resident(const struct vgx_sim_code *code, const struct vgx_sim_launch *launch,
                         struct vgx_sim_thread *thread) {
  bool live = true;
  start_turns(code, thread, launch->cta_count, vgx_sim_shared_stride(launch));
  while (live && !is_stopped(launch)) {
    live = false;
    for (uint64_t i = 0; i < launch->cta_count; i++) {
      struct turn *turn = turn_of(code, thread, i);
      place(&turn->thread, launch, i);
      if (turn->live && !take_turn(code, launch, turn)) {
        fail(launch);
        return;
      }
      live |= turn->live != 0;
    }
  }
}

/* Place CTA `rank` of a cluster. */
static void place_in_cluster(struct vgx_sim_thread *thread, const struct vgx_sim_code *code,
                             const struct vgx_sim_launch *launch, uint64_t cluster, uint64_t rank) {
  const uint32_t *size = code->cluster;
  uint64_t columns = launch->grid[0] / size[0], rows = launch->grid[1] / size[1];
  thread->cta[0] = (uint32_t)(cluster % columns * size[0] + rank % size[0]);
  thread->cta[1] = (uint32_t)(cluster / columns % rows * size[1] + rank / size[0] % size[1]);
  thread->cta[2] = (uint32_t)(cluster / columns / rows * size[2] + rank / size[0] / size[1]);
}

/* Open the cluster's barrier if every warp that has not ended has arrived. */
static bool open_cluster(const struct vgx_sim_code *code, struct vgx_sim_thread *thread, uint64_t size) {
  for (uint64_t rank = 0; rank < size; rank++) {
    struct tables t = tables_of(code, &turn_of(code, thread, rank)->thread);
    for (uint32_t w = 0; w < code->warp_count; w++)
      if (t.waits[w] != VGX_SIM_ENDED && !t.arrivals[w])
        return false;
  }
  for (uint64_t rank = 0; rank < size; rank++) {
    struct tables t = tables_of(code, &turn_of(code, thread, rank)->thread);
    for (uint32_t w = 0; w < code->warp_count; w++) {
      if (t.waits[w] == VGX_SIM_CLUSTER_BARRIER)
        t.waits[w] = VGX_SIM_RUNNING;
      t.arrivals[w] = 0;
    }
  }
  return true;
}

/* Run one cluster. False: the launch stops, or has failed. */
static bool run_cluster(const struct vgx_sim_code *code, const struct vgx_sim_launch *launch,
                        struct vgx_sim_thread *thread, uint64_t cluster, uint64_t size) {
  start_turns(code, thread, size, 0);
  for (uint64_t rank = 0; rank < size; rank++)
    place_in_cluster(&turn_of(code, thread, rank)->thread, code, launch, cluster, rank);
  for (;;) {
    if (is_stopped(launch))
      return false;
    bool live = false, moved = false;
    for (uint64_t rank = 0; rank < size; rank++) {
      struct turn *turn = turn_of(code, thread, rank);
      if (turn->live)
        moved |= take_turn(code, launch, turn) != 0;
      live |= turn->live != 0;
    }
    if (!live)
      return true;
    if (!open_cluster(code, thread, size) && !moved) {
      fail(launch);
      return false;
    }
  }
}

static void run_clusters(const struct vgx_sim_code *code, const struct vgx_sim_launch *launch,
                         struct vgx_sim_thread *thread) {
  uint64_t size = (uint64_t)code->cluster[0] * code->cluster[1] * code->cluster[2], first, last;
  uint64_t chunk = launch->cta_chunk / size ? launch->cta_chunk / size : 1;
  while (claim(code, launch, launch->cta_count / size, chunk, &first, &last))
    for (uint64_t cluster = first; cluster < last; cluster++)
      if (!run_cluster(code, launch, thread, cluster, size))
        return;
}

/* The CTAs [next, end) that this thread has claimed from the launch. */
struct queue {
  uint64_t next, end;
};

static bool pop_cta(const struct vgx_sim_code *code, const struct vgx_sim_launch *launch, struct queue *queue,
                    uint64_t *cta) {
  struct queue more;
  if (queue->next == queue->end) {
    if (!claim(code, launch, launch->cta_count, launch->cta_chunk, &more.next, &more.end))
      return false;
    *queue = more;
  }
  *cta = queue->next++;
  return true;
}

/* The place of a CTA in an interleaved kernel: the first is the thread's own memory, the others are at `more`. */
static struct turn *turn_at(const struct vgx_sim_code *code, struct vgx_sim_thread *thread, uint8_t *more, uint64_t i) {
  return (struct turn *)((i ? more + i * code->frames_nbytes : thread->frames) + code->turn);
}

static void start_at(const struct vgx_sim_code *code, const struct vgx_sim_launch *launch,
                     struct vgx_sim_thread *thread, uint8_t *more, uint64_t i, uint64_t cta) {
  struct turn *turn = turn_at(code, thread, more, i);
  *turn = (struct turn){.thread = *thread, .live = code->warp_count};
  turn->thread.frames = i ? more + i * code->frames_nbytes : thread->frames;
  turn->thread.local += i * code->locals_nbytes;
  turn->thread.shared += i * vgx_sim_place_stride(launch);
  place(&turn->thread, launch, cta);
  struct tables t = tables_of(code, &turn->thread);
  start(code, &t);
}

/* Run one round of each CTA in the first `used` places. *live: how many have not ended; *vacant: a free place. Returns
 * the combined results of the rounds; 0: a CTA cannot go on. */
static uint32_t run_places(const struct vgx_sim_code *code, const struct vgx_sim_launch *launch,
                           struct vgx_sim_thread *thread, uint8_t *more, uint64_t used, uint64_t *live,
                           uint64_t *vacant) {
  uint32_t did = MOVED;
  *live = 0;
  *vacant = used;
  for (uint64_t i = 0; i < used; i++) {
    struct turn *turn = turn_at(code, thread, more, i);
    uint32_t done = turn->live ? take_turn(code, launch, turn) : MOVED;
    if (!done)
      return 0;
    did |= done;
    *live += turn->live != 0;
    *vacant = turn->live ? *vacant : i;
  }
  return did;
}

static void run_interleaved(const struct vgx_sim_code *code, const struct vgx_sim_launch *launch,
                            struct vgx_sim_thread *thread) {
  struct vgx_sim_services *services = launch->services;
  struct queue queue = {0, 0};
  uint64_t used = 0, live, vacant, cta; /* used: places that hold, or have held, a CTA */
  uint8_t *more = NULL, *frames;
  for (uint32_t idle = 0; !is_stopped(launch);) {
    uint32_t did = run_places(code, launch, thread, more, used, &live, &vacant);
    if (!did) {
      fail(launch);
      return;
    }
    idle = did & WENT_ON ? 0 : idle + 1;
    if (live && idle < IDLE_ROUNDS)
      continue;
    idle = 0;
    bool left = queue.next < queue.end || __atomic_load_n(launch->next_cta, __ATOMIC_RELAXED) < launch->cta_count;
    if (!left && !live)
      return;
    if (!left || vacant >= launch->places) {
      services->another(services, thread, 0);
      continue;
    }
    if (vacant && vacant == used) {
      if (!(frames = services->another(services, thread, vacant)))
        continue;
      more = frames;
    }
    if (pop_cta(code, launch, &queue, &cta)) {
      start_at(code, launch, thread, more, vacant, cta);
      used = vacant < used ? used : vacant + 1;
    }
  }
}

void vgx_sim_schedule(const struct vgx_sim_code *code, const struct vgx_sim_launch *launch,
                      struct vgx_sim_thread *thread) {
  uint32_t before = vgx_sim_control_word();
  vgx_sim_set_control_word(code->flush ? CONTROL_FLUSH : CONTROL_DEFAULT);
  counted_ns = code->quick ? now_ns() : 0;
  if (code->turns == VGX_SIM_CLUSTERS)
    run_clusters(code, launch, thread);
  else if (code->turns == VGX_SIM_RESIDENT)
    run_resident(code, launch, thread);
  else if (code->turns == VGX_SIM_INTERLEAVED)
    run_interleaved(code, launch, thread);
  else if (code->turns == VGX_SIM_ROWS)
    run_rows(code, launch, thread);
  else
    run_ctas(code, launch, thread);
  count_time(code);
  vgx_sim_set_control_word(before);
}
