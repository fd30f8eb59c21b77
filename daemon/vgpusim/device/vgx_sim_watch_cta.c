/* The beginning and end of a watched launch, and of each of its CTAs. */
#include "vgx_sim_watch_cta.h"

#include <stdlib.h>

#include "vgx_sim_watch_lock.h"
#include "vgx_sim_watch_memory.h"
#include "vgx_sim_watch_report.h"

static uint64_t launch_count; /* of the process; atomic */

void vgx_sim_watch_begin(struct vgx_sim_watch *watch, uint32_t tools, const char *kernel,
                         const struct vgx_sim_launch *launch, bool resident) {
  *watch = (struct vgx_sim_watch){.tools = tools, .kernel = kernel, .launch = launch, .resident = resident};
  watch->ctas = calloc(resident ? launch->cta_count : 1, sizeof *watch->ctas);
  __atomic_add_fetch(&launch_count, 1, __ATOMIC_RELAXED);
}

void vgx_sim_watch_end(struct vgx_sim_watch *watch) {
  vgx_sim_watch_take(watch); /* the launch has ended: its thread does nothing here any more */
  for (uint64_t i = 0; watch->ctas && i < (watch->resident ? watch->launch->cta_count : 1); i++) {
    vgx_sim_races_destroy(watch->ctas[i].races);
    free(watch->ctas[i].shared_defined);
    free(watch->ctas[i].unset);
  }
  free(watch->ctas);
  watch->ctas = NULL;
  vgx_sim_watch_release(watch);
}

struct vgx_sim_cta_watch *vgx_sim_cta_watch_find(struct vgx_sim_watch *watch, const struct vgx_sim_thread *thread) {
  const uint32_t *grid = watch->launch->grid;
  uint64_t cta = thread->cta[0] + grid[0] * (thread->cta[1] + (uint64_t)grid[1] * thread->cta[2]);
  if (!watch->ctas)
    return NULL;
  struct vgx_sim_cta_watch *w = &watch->ctas[watch->resident ? cta : 0];
  if (w->launch_id == watch->launch->launch_id && w->cta == cta)
    return w;
  w->launch_id = watch->launch->launch_id;
  w->cta = cta;
  if (watch->tools & VGX_SIM_RACECHECK && !w->races)
    w->races = vgx_sim_races_create();
  if (w->races)
    vgx_sim_races_begin(w->races, watch->launch, cta, !watch->resident);
  if (watch->tools & VGX_SIM_INITCHECK_SHARED && w->shared_nbytes < vgx_sim_watch_shared_nbytes(watch)) {
    free(w->shared_defined);
    w->shared_nbytes = vgx_sim_watch_shared_nbytes(watch);
    w->shared_defined = malloc(w->shared_nbytes);
  }
  if (w->shared_defined)
    memset(w->shared_defined, 0, w->shared_nbytes);
  w->undefined_nbytes = w->shared_nbytes;
  if (w->shared_defined && !w->unset)
    w->unset = calloc(VGX_SIM_WARPS_MAX * 32, sizeof *w->unset);
  if (w->some_unset)
    memset(w->unset, 0, VGX_SIM_WARPS_MAX * 32 * sizeof *w->unset);
  w->some_unset = false;
  return w;
}

void vgx_sim_watch_totals(void (*log)(const char *format, ...)) {
  struct vgx_sim_report r;
  vgx_sim_report_begin(&r, "launches", NULL);
  vgx_sim_report_number(&r, "count", __atomic_load_n(&launch_count, __ATOMIC_RELAXED));
  vgx_sim_report_end(&r, log);
  struct vgx_sim_range leaked;
  for (uint64_t i = 0; vgx_sim_tools & VGX_SIM_LEAKCHECK && vgx_sim_watch_live(i, &leaked); i++) {
    vgx_sim_report_begin(&r, "leak", NULL);
    vgx_sim_report_number(&r, "address", leaked.address);
    vgx_sim_report_number(&r, "nbytes", leaked.nbytes);
    vgx_sim_report_stack(&r, "allocated_by", leaked.allocated_by);
    vgx_sim_report_end(&r, log);
  }
  if (vgx_sim_report_suppressed()) {
    vgx_sim_report_begin(&r, "suppressed", NULL);
    vgx_sim_report_number(&r, "count", vgx_sim_report_suppressed());
    vgx_sim_report_end(&r, log);
  }
}
