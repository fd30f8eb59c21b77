/* The pool: a fixed set of threads that join whatever launch has CTAs left, and the watchdog that ends launches.
 *
 * The thread that calls vgx_sim_pool_run takes part itself, so a launch of one CTA costs no wake-up. Each CTA is run to
 * completion, and waiting for lower-numbered CTAs always ends (vgx_sim_schedule.c).
 *
 * Locking: `pool_lock` guards the list of running jobs and their members; no kernel runs under it. It is a leaf. */
#define _GNU_SOURCE
#include "vgx_sim_pool.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "vgw_clock.h"
#include "vgx_sim_count.h"
#include "vgx_sim_runtime.h"
#include "vgx_sim_schedule.h"
#include "vgx_sim_scratch.h"
#include "vgx_sim_watch.h"

#define THREADS_MAX 256u
#define STACK_NBYTES (8ull << 20)
#define ENDING_NS 200000000u       /* how long running CTAs may go on after vgx_sim_pool_end_soon */
#define KICK_INTERVAL_NS 10000000u /* a stopped launch is kicked this often until its threads have left */

struct running {
  struct vgx_sim_job *job;
  uint64_t next_cta;
  uint32_t stop;    /* atomic; nonzero: leave */
  uint32_t helpers; /* pool threads inside, the owner not counted */
  uint32_t wanted;  /* pool threads that may still join */
  uint32_t joined;  /* threads that are or have been inside */
  uint64_t deadline_ns;
  struct vgx_sim_fault fault;
  struct vgx_sim_fault ending; /* result 0, or what the launch ends with when its threads have left */
  pthread_t threads[THREADS_MAX];
  uint32_t thread_count; /* threads inside, the owner included */
  struct running *next;
};

static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;     /* a job wants threads */
static pthread_cond_t finished = PTHREAD_COND_INITIALIZER; /* a helper has left a job */
static pthread_cond_t watch;                               /* the watchdog has something to do; monotonic clock */
static pthread_once_t started = PTHREAD_ONCE_INIT;
static struct running *jobs;
static uint32_t configured_threads, pool_threads; /* pool_threads: without the launch's own thread */
static uint64_t watchdog_ms;

void vgx_sim_set_threads(uint32_t count) { configured_threads = count < THREADS_MAX ? count : THREADS_MAX; }

void vgx_sim_set_watchdog(uint64_t limit_ms) {
  pthread_mutex_lock(&pool_lock);
  watchdog_ms = limit_ms;
  pthread_mutex_unlock(&pool_lock);
}

struct call {
  const struct vgx_sim_code *code;
  struct vgx_sim_launch launch;
  struct vgx_sim_thread *thread;
};

static void call_kernel(void *argument) {
  struct call *call = argument;
  vgx_sim_schedule(call->code, &call->launch, call->thread);
}

/* Take part in a job. Lock not held; the thread is in the job's list. */
static void participate(struct running *r, uint32_t region) {
  struct vgx_sim_job *job = r->job;
  struct vgx_sim_fault fault = {.result = CUDA_SUCCESS};
  vgx_sim_fault_thread_init();
  struct call call = {.code = job->code};
  call.thread = vgx_sim_scratch_prepare(job, &call.launch);
  if (call.thread) {
    call.launch.region = region;
    call.thread->number = region;
    call.thread->warp = VGX_SIM_NO_WARP;
    vgx_sim_schedule_init(call.thread);
    vgx_sim_guarded(&r->stop, call_kernel, &call, &fault);
    const struct vgx_sim_thread *ran = vgx_sim_schedule_running();
    fault.warp = ran->warp;
    memcpy(fault.cta, ran->cta, sizeof fault.cta);
    vgx_sim_scratch_rest();
  } else {
    fault = (struct vgx_sim_fault){.result = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
                                   .message = "no memory for the kernel's frames"};
  }
  pthread_mutex_lock(&pool_lock);
  for (uint32_t i = 0; job->counters && call.thread && i < VGX_SIM_COUNTERS; i++)
    job->counters[i] += call.thread->counters[i];
  for (uint32_t i = 0; i < r->thread_count; i++)
    if (pthread_equal(r->threads[i], pthread_self())) {
      r->threads[i] = r->threads[--r->thread_count];
      break;
    }
  r->wanted = 0; /* this thread found no CTA left, or the launch is over */
  if (r->ending.result != CUDA_SUCCESS)
    fault = r->ending;
  if (fault.result != CUDA_SUCCESS && r->fault.result == CUDA_SUCCESS) {
    r->fault = fault;
    __atomic_store_n(&r->stop, 1, __ATOMIC_RELEASE);
    pthread_cond_signal(&watch); /* other threads may be waiting for this thread's CTA: the watchdog interrupts them */
  }
  pthread_mutex_unlock(&pool_lock);
}

/* Lock held. */
static void shorten_locked(struct running *r, uint64_t limit_ns) {
  uint64_t latest = vgw_now_ns() + limit_ns;
  r->deadline_ns = latest < r->deadline_ns ? latest : r->deadline_ns;
  pthread_cond_signal(&watch);
}

void vgx_sim_pool_limit(const uint32_t *stop, uint64_t limit_ms) {
  pthread_mutex_lock(&pool_lock);
  for (struct running *r = jobs; r; r = r->next)
    if (&r->stop == stop)
      shorten_locked(r, limit_ms * 1000000u);
  pthread_mutex_unlock(&pool_lock);
}

void vgx_sim_pool_end_soon(const uint32_t *stop, CUresult result, const char *message) {
  pthread_mutex_lock(&pool_lock);
  for (struct running *r = jobs; r; r = r->next)
    if (&r->stop == stop && r->ending.result == CUDA_SUCCESS) {
      r->ending = (struct vgx_sim_fault){.result = result, .message = message};
      __atomic_store_n(&r->stop, 1, __ATOMIC_RELEASE);
      shorten_locked(r, ENDING_NS);
    }
  pthread_mutex_unlock(&pool_lock);
}

/* Lock held. Returns which of the launch's regions the thread begins with. */
static uint32_t join_locked(struct running *r) {
  r->threads[r->thread_count++] = pthread_self();
  return r->joined++;
}

static void *pool_thread(void *unused) {
  (void)unused;
  pthread_mutex_lock(&pool_lock);
  for (;;) {
    struct running *r = jobs;
    while (r && r->wanted == 0)
      r = r->next;
    if (!r) {
      pthread_cond_wait(&work, &pool_lock);
      continue;
    }
    r->wanted--;
    r->helpers++;
    uint32_t region = join_locked(r);
    pthread_mutex_unlock(&pool_lock);
    participate(r, region);
    pthread_mutex_lock(&pool_lock);
    if (--r->helpers == 0)
      pthread_cond_broadcast(&finished);
  }
  return NULL;
}

/* Ends launches past their deadline, and drives the threads out of launches that were stopped. */
static void *watchdog_thread(void *unused) {
  (void)unused;
  pthread_mutex_lock(&pool_lock);
  for (;;) {
    uint64_t now = vgw_now_ns(), next = UINT64_MAX;
    for (struct running *r = jobs; r; r = r->next) {
      if (r->fault.result == CUDA_SUCCESS && r->deadline_ns <= now) {
        r->fault = (struct vgx_sim_fault){.result = CUDA_ERROR_LAUNCH_TIMEOUT,
                                          .message = "longer than limits.kernel_run_s of vgpud"};
        if (r->ending.result != CUDA_SUCCESS)
          r->fault = r->ending;
        __atomic_store_n(&r->stop, 1, __ATOMIC_RELEASE);
      }
      if (r->fault.result != CUDA_SUCCESS) {
        for (uint32_t i = 0; i < r->thread_count; i++)
          vgx_sim_kick(r->threads[i]);
        next = r->thread_count && now + KICK_INTERVAL_NS < next ? now + KICK_INTERVAL_NS : next;
      } else if (r->deadline_ns < next) {
        next = r->deadline_ns;
      }
    }
    if (next == UINT64_MAX) {
      pthread_cond_wait(&watch, &pool_lock);
    } else {
      struct timespec until = {.tv_sec = (time_t)(next / 1000000000u), .tv_nsec = (long)(next % 1000000000u)};
      pthread_cond_clockwait(&watch, &pool_lock, CLOCK_MONOTONIC, &until);
    }
  }
  return NULL;
}

static bool spawn(void *(*body)(void *)) {
  pthread_attr_t attributes;
  pthread_t thread;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, STACK_NBYTES);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  int error = pthread_create(&thread, &attributes, body, NULL);
  pthread_attr_destroy(&attributes);
  return error == 0;
}

/* How many processors this process may use: a container or taskset may leave it fewer than are online, and threads that
 * share a processor only delay the end of a launch. */
static uint32_t processors(void) {
  cpu_set_t set; /* holds 1024; the call fails where there are more */
  int count = sched_getaffinity(0, sizeof set, &set) ? (int)THREADS_MAX : CPU_COUNT(&set);
  return count < (int)THREADS_MAX ? (uint32_t)count : THREADS_MAX;
}

static void start(void) {
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&watch, &monotonic);
  pthread_condattr_destroy(&monotonic);
  uint32_t count = configured_threads ? configured_threads : processors();
  for (uint32_t i = 1; i < count; i++)
    pool_threads += spawn(pool_thread);
  if (!spawn(watchdog_thread))
    vgx_sim_log("simulator: the watchdog's thread could not be started: endless kernels cannot be ended");
}

/* Make `count` regions of about the same size of the CTAs [begin, end). */
static void divide(struct vgx_sim_region *regions, uint32_t count, uint64_t begin, uint64_t end) {
  for (uint32_t i = 0; i < count; i++) {
    uint64_t after = begin + (end - begin) / (count - i);
    regions[i] = (struct vgx_sim_region){.next = begin, .begin = begin, .end = after};
    begin = after;
  }
}

CUresult vgx_sim_pool_run(struct vgx_sim_job *job, struct vgx_sim_fault *fault) {
  pthread_once(&started, start);
  uint64_t ctas = job->launch.cta_count;
  struct running r = {.job = job, .deadline_ns = UINT64_MAX, .next_cta = job->first_cta};
  uint64_t threads = job->alone ? 1 : ctas < pool_threads + 1 ? ctas : pool_threads + 1;
  if (job->threads_max && threads > job->threads_max)
    threads = job->threads_max;
  if (job->in_order && threads > VGX_SIM_WATCH_THREADS)
    threads = VGX_SIM_WATCH_THREADS;
  /* Chunks are small, so that threads finish at about the same time, but large enough that claiming them costs little.
   */
  uint64_t chunk = ctas / (threads * 64);
  job->launch.cta_chunk = job->alone ? ctas : chunk < 1 || job->in_order ? 1 : chunk > 64 ? 64 : chunk;
  struct vgx_sim_region regions[THREADS_MAX];
  divide(regions, (uint32_t)threads, job->first_cta, ctas);
  job->launch.regions = job->in_order ? NULL : regions;
  job->launch.region_count = (uint32_t)threads;
  job->launch.next_cta = &r.next_cta;
  job->launch.stop = &r.stop;
  r.wanted = (uint32_t)threads - 1;
  pthread_mutex_lock(&pool_lock);
  uint32_t region = join_locked(&r);
  uint64_t limit_ms = job->limit_ms ? job->limit_ms : watchdog_ms;
  if (limit_ms) {
    r.deadline_ns = vgw_now_ns() + limit_ms * 1000000u;
    pthread_cond_signal(&watch);
  }
  r.next = jobs;
  jobs = &r;
  pthread_mutex_unlock(&pool_lock);
  if (threads == 2) /* after the lock is released: a woken thread takes it first */
    pthread_cond_signal(&work);
  else if (threads > 2)
    pthread_cond_broadcast(&work);

  participate(&r, region);

  pthread_mutex_lock(&pool_lock);
  while (r.helpers)
    pthread_cond_wait(&finished, &pool_lock);
  for (struct running **link = &jobs; *link; link = &(*link)->next)
    if (*link == &r) {
      *link = r.next;
      break;
    }
  pthread_mutex_unlock(&pool_lock);
  *fault = r.fault;
  return r.fault.result;
}
