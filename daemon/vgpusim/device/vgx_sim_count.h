/* The profiler: kernels that are compiled to be counted add up what their warps do, each pool thread in counters of its
 * own. A launch that has ended says so in one line of the log, "profile: ...", of which `vgpu sim profile` makes a
 * table and a trace; so does one that still runs at the session's end. vgpusim/codegen/counters.py has the same
 * numbers. */
#ifndef VGX_SIM_COUNT_H
#define VGX_SIM_COUNT_H

#include <stdbool.h>
#include <stdint.h>

struct vgx_sim_job;
struct vgx_sim_launch;

enum vgx_sim_count {
  VGX_SIM_WARP_INSTRUCTIONS,
  VGX_SIM_THREAD_INSTRUCTIONS, /* warp instructions, each counted once for each active lane */
  VGX_SIM_BRANCHES,            /* conditional branches, counted by warp */
  VGX_SIM_DIVERGENT_BRANCHES,
  VGX_SIM_BYTES, /* bytes read, written and accessed by atomics, each for global, shared, local and generic addresses */
  VGX_SIM_COUNTERS = VGX_SIM_BYTES + 12,
};

extern bool vgx_sim_counts; /* kernels are counted; set before the first launch */

/* One run of a launch. */
struct vgx_sim_counted {
  struct vgx_sim_counted *next, **link; /* in the list of running launches */
  const char *kernel;
  uint64_t begin_ns;
  uint64_t counters[VGX_SIM_COUNTERS];
};

/* Called before and after a run; they do nothing unless kernels are counted. */
void vgx_sim_count_begin(struct vgx_sim_counted *counted, struct vgx_sim_job *job, const char *kernel);
void vgx_sim_count_end(struct vgx_sim_counted *counted, uint32_t device, const struct vgx_sim_launch *launch,
                       int32_t result);

/* At the session's end: name the kernels that still run. */
void vgx_sim_count_unfinished(void);

#endif
