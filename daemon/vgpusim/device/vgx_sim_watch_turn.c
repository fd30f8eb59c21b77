/* Racecheck on several threads.
 *
 * What is found must not depend on which thread was faster. So all that a launch notes of global memory, and all that
 * it reports, is as if one thread ran CTA after CTA in ascending order: it is a CTA's turn when all before it have
 * ended. Ahead of its turn a CTA does what neither another CTA nor a note can tell from the same done later: it
 * computes, uses its shared and local memory, waits at its barriers, and loads from global memory. These loads are kept
 * (vgx_sim_race_ahead.c). Before anything else, as a store or an atomic operation in global memory, a volatile load, a
 * fence, a report or a call of the device runtime, it waits for its turn; then its loads are noted, and it goes on like
 * the only thread.
 *
 * Nothing but a race is different then: a load ahead of its turn may read what was there before a CTA before stored it,
 * but nothing orders such a load after that store, so both are reported either way.
 *
 * Kernels whose CTAs may wait for others run on one thread. So do those without barriers, most of which store soon
 * after they begin. A thread whose CTAs mostly wait for their turn leaves the launch. */
#define _GNU_SOURCE
#include "vgx_sim_watch_turn.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "vgw_clock.h"
#include "vgx_sim_fault.h"

#define SPINS 2000u
#define SLEEP_NS 2000000 /* at most: a launch that stops wakes nobody */
#define LATE_MAX 16u

bool vgx_sim_watch_goes_ahead(uint32_t tools, uint32_t turns) {
  return (tools & ~(uint32_t)VGX_SIM_LEAKCHECK) == VGX_SIM_RACECHECK &&
         (turns == VGX_SIM_LOCKSTEP || turns == VGX_SIM_BARRIERS);
}

static bool is_turn(const struct vgx_sim_watch *watch, uint64_t cta) {
  return __atomic_load_n(&watch->turn, __ATOMIC_ACQUIRE) == cta;
}

static void pause_a_moment(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/* Sleep until the turn passes to another CTA, or for a while. */
static void sleep_for_turn(struct vgx_sim_watch *watch, uint64_t cta) {
  const struct timespec limit = {.tv_nsec = SLEEP_NS};
  __atomic_add_fetch(&watch->sleepers, 1, __ATOMIC_SEQ_CST);
  uint64_t now = __atomic_load_n(&watch->turn, __ATOMIC_SEQ_CST);
  if (now != cta) /* the low half comes first: this is a little-endian machine, or the sleep ends by its limit */
    syscall(SYS_futex, &watch->turn, FUTEX_WAIT_PRIVATE, (uint32_t)now, &limit, NULL, 0);
  __atomic_sub_fetch(&watch->sleepers, 1, __ATOMIC_SEQ_CST);
}

static void wait_for_turn(struct vgx_sim_watch *watch, const struct vgx_sim_thread *thread) {
  uint64_t cta = vgx_sim_watch_cta_number(watch, thread);
  if (is_turn(watch, cta))
    return;
  uint64_t begin_ns = vgw_now_ns();
  for (uint32_t spins = 0; !is_turn(watch, cta); spins++) {
    if (__atomic_load_n(watch->launch->stop, __ATOMIC_RELAXED)) {
      vgx_sim_service_end(); /* does not return */
      return;
    }
    if (spins < SPINS)
      pause_a_moment();
    else
      sleep_for_turn(watch, cta);
  }
  vgx_sim_watched(watch, thread)->waited_ns += vgw_now_ns() - begin_ns;
}

bool vgx_sim_watch_begins_ahead(struct vgx_sim_watch *watch, const struct vgx_sim_thread *thread) {
  if (is_turn(watch, vgx_sim_watch_cta_number(watch, thread)))
    return false;
  if (watch->ctas && watch->ctas[thread->number % VGX_SIM_WATCH_THREADS].races)
    return true;
  wait_for_turn(watch, thread); /* its state comes from memory that launches share */
  return false;
}

void vgx_sim_watch_take_turn(struct vgx_sim_watch *watch, const struct vgx_sim_thread *thread) {
  struct vgx_sim_watched_thread *watched = vgx_sim_watched(watch, thread);
  if (!watch->in_order)
    return;
  bool begun = vgx_sim_is_last_cta(watched, thread);
  if (begun && !watched->ahead)
    return;
  wait_for_turn(watch, thread);
  if (!begun)
    return;
  watched->ahead = false;
  watch->begin_turn(watch, watched->last, thread);
}

/* Whether more of the thread's CTAs than not have waited for their turn for a third of their time. */
static bool is_mostly_late(struct vgx_sim_watched_thread *watched) {
  uint64_t now_ns = vgw_now_ns();
  watched->late_count += watched->begin_ns && watched->waited_ns > (now_ns - watched->begin_ns) / 3;
  watched->cta_count++;
  watched->begin_ns = now_ns;
  watched->waited_ns = 0;
  return watched->late_count > LATE_MAX && watched->late_count > watched->cta_count / 2;
}

int32_t vgx_sim_serve_end_cta(struct vgx_sim_services *services, const struct vgx_sim_thread *thread) {
  struct vgx_sim_watch *watch = services->watch;
  if (!watch->in_order)
    return true;
  vgx_sim_service_begin();
  vgx_sim_watch_take_turn(watch, thread);
  bool stays = !is_mostly_late(vgx_sim_watched(watch, thread)) || thread->number == 0;
  __atomic_add_fetch(&watch->turn, 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&watch->sleepers, __ATOMIC_SEQ_CST))
    syscall(SYS_futex, &watch->turn, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
  vgx_sim_service_end();
  return stays;
}
