/* What warps access in shared memory between two barriers of the whole CTA, as the same is repeated in loops and in the
 * next CTA: see vgx_sim_race_trace.c. */
#ifndef VGX_SIM_RACE_TRACE_H
#define VGX_SIM_RACE_TRACE_H

#include "vgx_sim_race_order.h"

/* Where the accesses since the last barrier stand. */
enum vgx_sim_race_phase {
  VGX_SIM_TRACE_NONE, /* no access yet */
  VGX_SIM_TRACE_FOLLOWED,
  VGX_SIM_TRACE_RECORDED,
  VGX_SIM_TRACE_LEFT, /* each access is looked at, and not recorded */
};

/* Memory; NULL: it is short, and there are no traces. */
struct vgx_sim_race_traces *vgx_sim_race_traces_create(void);
void vgx_sim_race_traces_destroy(struct vgx_sim_race_traces *traces);
/* Forget all traces: sites may be others'. */
void vgx_sim_race_traces_clear(struct vgx_sim_race_traces *traces);
/* All of the CTA's warps have met at a barrier, or a CTA begins. */
void vgx_sim_race_traces_advance(struct vgx_sim_race_traces *traces);

/* An access of lanes in the site's pattern from the offset `base` on. */
struct vgx_sim_race_step {
  const struct vgx_sim_site *site;
  uint32_t base, mask;
};
/* Whether the access is the next of a trace. False in the phase VGX_SIM_TRACE_FOLLOWED: it is not, and the caller
 * leaves the trace. */
bool vgx_sim_race_trace_follow(struct vgx_sim_race_traces *traces, uint32_t warp, uint32_t clock,
                               struct vgx_sim_race_step step);
/* Record an access if a trace is being recorded. */
void vgx_sim_race_trace_record(struct vgx_sim_race_traces *traces, uint32_t warp, struct vgx_sim_race_step step);
/* Stop following or recording until the next barrier. */
void vgx_sim_race_trace_leave(struct vgx_sim_race_traces *traces);
enum vgx_sim_race_phase vgx_sim_race_trace_phase(const struct vgx_sim_race_traces *traces);

/* The accesses that have followed the trace. Returns false behind a warp's last. */
bool vgx_sim_race_trace_followed(const struct vgx_sim_race_traces *traces, uint32_t warp, uint32_t number,
                                 struct vgx_sim_race_step *step, uint32_t *clock);

#endif
