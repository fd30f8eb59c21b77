#include "vgx_sim_watch_sync.h"

#include "vgx_sim_watch_cta.h"
#include "vgx_sim_watch_lock.h"
#include "vgx_sim_watch_report.h"
#include "vgx_sim_watch_turn.h"

static void report_barrier(struct vgx_sim_watch *watch, const struct vgx_sim_thread *thread, const char *what,
                           const struct vgx_sim_sync_point *point) {
  struct vgx_sim_report r;
  uint32_t lanes = point->others ? point->others : point->mask;
  watch->error_count++;
  if (!vgx_sim_report_admits(watch, point->site))
    return;
  vgx_sim_report_begin(&r, "barrier", watch);
  vgx_sim_report_text(&r, "what", what);
  vgx_sim_report_text(&r, "text", point->site->text);
  vgx_sim_report_text(&r, "place", point->site->place);
  vgx_sim_report_number(&r, "number", point->number);
  vgx_sim_report_place(&r, watch, thread, lanes ? (uint32_t)__builtin_ctz(lanes) : 0);
  vgx_sim_report_end(&r, watch->log);
}

static bool is_of_block(const struct vgx_sim_sync_point *point) {
  return point->sync == VGX_SIM_SYNC_WAIT || point->sync == VGX_SIM_SYNC_ARRIVE;
}

/* What synccheck finds wrong with a barrier; NULL: nothing. */
static const char *fault_of_barrier(const struct vgx_sim_sync_point *point) {
  if (is_of_block(point) && point->others)
    return "divergent threads in warp";
  if (is_of_block(point) && point->expected % 32)
    return "invalid arguments";
  if (point->sync == VGX_SIM_SYNC_WARP && (point->mask & ~point->expected))
    return "a thread that is not in the mask";
  if (point->sync == VGX_SIM_SYNC_WARP && (point->expected & point->others))
    return "divergent threads in warp";
  return NULL;
}

/* The lock is taken only for what threads share, reports and the state of races: kernels may pass barriers as often as
 * they access memory. */
void vgx_sim_watch_sync(struct vgx_sim_watch *watch, const struct vgx_sim_thread *thread,
                        const struct vgx_sim_sync_point *point) {
  const char *fault = watch->tools & VGX_SIM_SYNCCHECK ? fault_of_barrier(point) : NULL;
  bool races = watch->tools & VGX_SIM_RACECHECK;
  if (!fault && !races)
    return;
  if (point->sync == VGX_SIM_SYNC_FENCE)
    vgx_sim_watch_take_turn(watch, thread);
  vgx_sim_watch_lock(watch, thread);
  struct vgx_sim_cta_watch *cta = races ? vgx_sim_cta_watch_of(watch, thread) : NULL;
  if (fault)
    report_barrier(watch, thread, fault, point);
  if (cta && cta->races) {
    uint32_t number = point->number;
    if (point->sync == VGX_SIM_SYNC_WAIT)
      cta->waits_at[thread->warp % 32] = number;
    if (point->sync == VGX_SIM_SYNC_RESUME)
      number = cta->waits_at[thread->warp % 32];
    vgx_sim_races_sync(cta->races, thread->warp, point, number);
  }
  vgx_sim_watch_unlock(watch);
}
