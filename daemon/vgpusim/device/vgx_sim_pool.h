/* The threads that run kernels. */
#ifndef VGX_SIM_POOL_H
#define VGX_SIM_POOL_H

#include <stdbool.h>

#include "vgx_sim_abi.h"
#include "vgx_sim_fault.h"
#include "vgx_sim_reach.h"

struct CUgreenCtx_st;

/* One launch for the pool. The caller fills `launch` except its next_cta, cta_chunk, regions, stop and workspace. */
struct vgx_sim_job {
  struct vgx_sim_launch launch;
  const struct vgx_sim_code *code;
  uint64_t params_nbytes; /* to be copied for each thread */
  uint64_t frame_nbytes;  /* of a thread */
  uint64_t local_nbytes;  /* of a thread */
  uint64_t shared_nbytes; /* shared memory of a thread; at most VGX_SIM_SHARED_NBYTES_MAX */
  uint64_t first_cta;     /* CTAs before this one do not run */
  uint64_t limit_ms;      /* 0: the watchdog's */
  uint64_t *counters;     /* VGX_SIM_COUNTERS sums of a counted kernel, to which each thread's are added; else NULL */
  bool cooperative;       /* the kernel has a workspace */
  const struct CUgreenCtx_st *green; /* whose multiprocessors it uses; NULL: all */
  uint32_t threads_max;              /* 0: any number */
  bool alone;                        /* one thread runs every CTA: they are resident */
  bool in_order;                     /* CTAs begin one by one, in ascending order */
};

/* Run a launch on this thread and the pool's; returns when no thread is in the kernel any more. The first fault stops
 * all: then its result is returned and *fault tells more. */
CUresult vgx_sim_pool_run(struct vgx_sim_job *job, struct vgx_sim_fault *fault);

/* Called from inside a running launch, which its stop word identifies: start no further CTA, and end the launch with
 * `result` when the running ones have ended, or after a moment. The first caller's result and message count; the
 * message must outlive the launch. */
void vgx_sim_pool_end_soon(const uint32_t *stop, CUresult result, const char *message);

/* Called from inside a running launch, which its stop word identifies: end it like the watchdog if it still runs after
 * `limit_ms`. */
void vgx_sim_pool_limit(const uint32_t *stop, uint64_t limit_ms);

#endif
