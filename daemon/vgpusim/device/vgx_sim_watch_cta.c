#include "vgx_sim_watch_cta.h"

#include <stdlib.h>

struct vgx_sim_cta_watch *vgx_sim_cta_watch_find(struct vgx_sim_watch *watch, const struct vgx_sim_thread *thread) {
  uint64_t cta = vgx_sim_watch_cta_number(watch, thread);
  if (!watch->ctas)
    return NULL;
  struct vgx_sim_cta_watch *w = &watch->ctas[watch->resident ? cta : thread->number % VGX_SIM_WATCH_THREADS];
  if (w->launch_id == watch->launch->launch_id && w->cta == cta)
    return w;
  w->launch_id = watch->launch->launch_id;
  w->cta = cta;
  if (watch->tools & VGX_SIM_RACECHECK && !w->races)
    w->races = vgx_sim_races_create();
  if (w->races)
    vgx_sim_races_begin(w->races, watch->launch, cta, !watch->resident);
  if (w->races && !vgx_sim_watched(watch, thread)->ahead)
    vgx_sim_races_enter(w->races, watch->launch);
  if (watch->tools & VGX_SIM_INITCHECK_SHARED && w->shared_nbytes < vgx_sim_watch_shared_nbytes(watch)) {
    free(w->shared_defined);
    w->shared_nbytes = vgx_sim_watch_shared_nbytes(watch);
    w->shared_defined = malloc(w->shared_nbytes);
  }
  if (w->shared_defined)
    memset(w->shared_defined, 0, w->shared_nbytes);
  w->undefined_nbytes = w->shared_nbytes;
  if (w->shared_defined && !w->unset)
    w->unset = calloc(VGX_SIM_WARPS_MAX * 32 * VGX_SIM_UNSET_LOADS, sizeof *w->unset);
  if (w->some_unset)
    memset(w->unset, 0, VGX_SIM_WARPS_MAX * 32 * VGX_SIM_UNSET_LOADS * sizeof *w->unset);
  w->some_unset = false;
  return w;
}
