/* Holds threads back between their entry of a launch and its first CTA (linked in by -Wl,--wrap), as when a busy
 * machine does not run them, until a kick takes them out of it. */
#include <semaphore.h>
#include <stdbool.h>
#include <unistd.h>

#include "vgx_sim_fault.h"
#include "vgx_sim_schedule.h"

void __real_vgx_sim_schedule(const struct vgx_sim_code *code, const struct vgx_sim_launch *launch,
                             struct vgx_sim_thread *thread);
void __wrap_vgx_sim_schedule(const struct vgx_sim_code *code, const struct vgx_sim_launch *launch,
                             struct vgx_sim_thread *thread);

int vgt_held_back; /* set by a test */

void __wrap_vgx_sim_schedule(const struct vgx_sim_code *code, const struct vgx_sim_launch *launch,
                             struct vgx_sim_thread *thread) {
  while (__atomic_load_n(&vgt_held_back, __ATOMIC_RELAXED))
    usleep(1000);
  __real_vgx_sim_schedule(code, launch, thread);
}

/* --- a kick while a kernel's time is counted --- */

static uint32_t stop;
static bool kicks, posted;

int __real_sem_post(sem_t *semaphore);
int __wrap_sem_post(sem_t *semaphore);

int __wrap_sem_post(sem_t *semaphore) {
  if (kicks) {
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    vgx_sim_kick(pthread_self());
  }
  int result = __real_sem_post(semaphore);
  posted = true;
  return result;
}

static uint32_t run_nothing(const struct vgx_sim_launch *l, struct vgx_sim_thread *t, uint32_t count, uint32_t warp) {
  (void)l, (void)t, (void)count, (void)warp;
  return 0;
}

static void schedule(void *argument) {
  struct vgx_sim_quick quick = {.warp = run_nothing, .budget_ns = 1};
  struct vgx_sim_code code = {.warp = run_nothing, .warp_count = 1, .turns = VGX_SIM_ROWS, .quick = &quick};
  uint64_t next = 0;
  struct vgx_sim_launch launch = {.next_cta = &next, .stop = &stop, .grid = {1, 1, 1}};
  struct vgx_sim_thread thread = {0};
  __real_vgx_sim_schedule(&code, &launch, &thread);
  *(bool *)argument = true;
}

/* Kick this thread where it says that a kernel has used up its time. 1: it has said so, and then stopped. */
int vgt_kick_while_counting(void);
int vgt_kick_while_counting(void) {
  struct vgx_sim_fault fault;
  bool ended = false;
  kicks = true;
  CUresult result = vgx_sim_guarded(&stop, schedule, &ended, &fault);
  kicks = false;
  return result == CUDA_ERROR_LAUNCH_FAILED && posted && !ended;
}
