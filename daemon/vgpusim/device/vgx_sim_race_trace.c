/* Traces of shared memory. Loads and stores between two barriers of the whole CTA, with nothing else between them that
 * orders warps, race or do not race whatever their order. So once some were found not to race, the same accesses are
 * only compared with the trace that was recorded then, until one differs. Then those so far are noted after all, and
 * each further one is looked at until the next barrier.
 *
 * Only accesses whose lanes follow a known pattern are traced. */
#define _GNU_SOURCE
#include "vgx_sim_race_trace.h"

#include <string.h>
#include <sys/mman.h>

#define TRACES 16u
#define STEPS 64u       /* of a warp */
#define DEPARTURES 256u /* from traces; then a launch's accesses are not traced any more */

struct trace {
  uint32_t counts[VGX_SIM_WARPS_MAX];
  struct vgx_sim_race_step steps[VGX_SIM_WARPS_MAX][STEPS];
};

struct vgx_sim_race_traces {
  enum vgx_sim_race_phase phase;
  uint32_t count, departures;
  struct trace *now;                  /* that is followed or recorded */
  uint32_t at[VGX_SIM_WARPS_MAX];     /* by warp: accesses that have followed it */
  uint32_t clocks[VGX_SIM_WARPS_MAX]; /* of the warps when they did */
  struct trace traces[TRACES];
};

struct vgx_sim_race_traces *vgx_sim_race_traces_create(void) {
  void *got = mmap(NULL, sizeof(struct vgx_sim_race_traces), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return got == MAP_FAILED ? NULL : got;
}

void vgx_sim_race_traces_destroy(struct vgx_sim_race_traces *traces) {
  if (traces)
    munmap(traces, sizeof *traces);
}

void vgx_sim_race_traces_clear(struct vgx_sim_race_traces *traces) {
  traces->phase = VGX_SIM_TRACE_NONE;
  traces->count = traces->departures = 0;
}

void vgx_sim_race_traces_advance(struct vgx_sim_race_traces *traces) {
  if (traces->phase == VGX_SIM_TRACE_RECORDED)
    traces->count++;
  traces->phase = traces->departures < DEPARTURES ? VGX_SIM_TRACE_NONE : VGX_SIM_TRACE_LEFT;
}

static bool is_step(const struct trace *trace, uint32_t warp, uint32_t number, struct vgx_sim_race_step now) {
  const struct vgx_sim_race_step *step = &trace->steps[warp][number];
  return number < trace->counts[warp] && step->site == now.site && step->base == now.base && step->mask == now.mask;
}

/* Choose by the first access since the barrier what to do until the next one. */
static void begin(struct vgx_sim_race_traces *traces, uint32_t warp, struct vgx_sim_race_step step) {
  traces->phase = traces->count < TRACES ? VGX_SIM_TRACE_RECORDED : VGX_SIM_TRACE_LEFT;
  traces->now = &traces->traces[traces->count];
  for (uint32_t i = 0; i < traces->count; i++)
    if (is_step(&traces->traces[i], warp, 0, step)) {
      traces->phase = VGX_SIM_TRACE_FOLLOWED;
      traces->now = &traces->traces[i];
      break;
    }
  if (traces->phase == VGX_SIM_TRACE_RECORDED)
    memset(traces->now->counts, 0, sizeof traces->now->counts);
  memset(traces->at, 0, sizeof traces->at);
}

bool vgx_sim_race_trace_follow(struct vgx_sim_race_traces *traces, uint32_t warp, uint32_t clock,
                               struct vgx_sim_race_step step) {
  if (traces->phase == VGX_SIM_TRACE_NONE)
    begin(traces, warp, step);
  if (traces->phase != VGX_SIM_TRACE_FOLLOWED || !is_step(traces->now, warp, traces->at[warp], step))
    return false;
  traces->at[warp]++;
  traces->clocks[warp] = clock;
  return true;
}

void vgx_sim_race_trace_record(struct vgx_sim_race_traces *traces, uint32_t warp, struct vgx_sim_race_step step) {
  if (traces->phase != VGX_SIM_TRACE_RECORDED)
    return;
  if (traces->now->counts[warp] == STEPS) {
    vgx_sim_race_trace_leave(traces);
    return;
  }
  traces->now->steps[warp][traces->now->counts[warp]++] = step;
}

void vgx_sim_race_trace_leave(struct vgx_sim_race_traces *traces) {
  if (traces->phase == VGX_SIM_TRACE_FOLLOWED || traces->phase == VGX_SIM_TRACE_RECORDED)
    traces->departures++;
  traces->phase = VGX_SIM_TRACE_LEFT;
}

enum vgx_sim_race_phase vgx_sim_race_trace_phase(const struct vgx_sim_race_traces *traces) { return traces->phase; }

bool vgx_sim_race_trace_followed(const struct vgx_sim_race_traces *traces, uint32_t warp, uint32_t number,
                                 struct vgx_sim_race_step *step, uint32_t *clock) {
  if (traces->phase != VGX_SIM_TRACE_FOLLOWED || number >= traces->at[warp])
    return false;
  *step = traces->now->steps[warp][number];
  *clock = traces->clocks[warp];
  return true;
}
