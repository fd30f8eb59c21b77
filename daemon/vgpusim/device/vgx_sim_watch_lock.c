#include "vgx_sim_watch_lock.h"

#include <pthread.h>
#include <sched.h>

#include "vgx_sim_watch_turn.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t last_number; /* atomic */
static _Thread_local uint64_t mine;
uint64_t vgx_sim_watch_lease;
uint32_t vgx_sim_watch_want_count;

static bool is_alone(const struct vgx_sim_watch *watch) {
  return (watch->tools & (VGX_SIM_INITCHECKS | VGX_SIM_RACECHECK)) != 0;
}

static bool pass_lease(uint64_t from, uint64_t to) {
  return __atomic_compare_exchange_n(&vgx_sim_watch_lease, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static void take_lease(struct vgx_sim_watch *watch) {
  uint64_t number = __atomic_add_fetch(&last_number, 1, __ATOMIC_RELAXED);
  uint64_t held = watch->lease ? watch->lease : mine; /* another thread of the launch may have taken it */
  bool wanted = __atomic_load_n(&vgx_sim_watch_want_count, __ATOMIC_RELAXED) != 0;
  if (!held || wanted || !pass_lease(held, number)) {
    if (held && pass_lease(held, 0))
      for (uint32_t i = 0; i < 100 && __atomic_load_n(&vgx_sim_watch_lease, __ATOMIC_RELAXED) == 0; i++)
        sched_yield(); /* until one of those that wait has it */
    __atomic_add_fetch(&vgx_sim_watch_want_count, 1, __ATOMIC_RELAXED);
    while (!pass_lease(0, number))
      sched_yield();
    __atomic_sub_fetch(&vgx_sim_watch_want_count, 1, __ATOMIC_RELAXED);
  }
  mine = watch->lease = number;
}

void vgx_sim_watch_hold(struct vgx_sim_watch *watch) {
  if (!vgx_sim_watch_is_locked(watch))
    take_lease(watch);
}

void vgx_sim_watch_lock(struct vgx_sim_watch *watch, const struct vgx_sim_thread *thread) {
  if (!is_alone(watch))
    pthread_mutex_lock(&lock);
  else if (!vgx_sim_watch_is_ahead(watch, thread))
    vgx_sim_watch_hold(watch);
}

void vgx_sim_watch_unlock(const struct vgx_sim_watch *watch) {
  if (!is_alone(watch))
    pthread_mutex_unlock(&lock);
}

void vgx_sim_watch_take(struct vgx_sim_watch *watch) {
  if (!watch->lease)
    return;
  pass_lease(watch->lease, 0);
  take_lease(watch);
}

void vgx_sim_watch_release(const struct vgx_sim_watch *watch) {
  if (watch->lease)
    pass_lease(watch->lease, 0);
}
