/* What a launch did, for `vgpu sim profile`: see vgx_sim_count.h. */
#define _GNU_SOURCE
#include "vgx_sim_count.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "vgw_clock.h"
#include "vgx_sim_pool.h"
#include "vgx_sim_runtime.h"

#define NAME_NBYTES_MAX 480 /* of a kernel in a line: mangled names are long, lines of the log are not */

bool vgx_sim_counts;

static pthread_mutex_t running_lock = PTHREAD_MUTEX_INITIALIZER;
static struct vgx_sim_counted *running;

void vgx_sim_count_begin(struct vgx_sim_counted *counted, struct vgx_sim_job *job, const char *kernel) {
  if (!vgx_sim_counts)
    return;
  memset(counted->counters, 0, sizeof counted->counters);
  job->counters = counted->counters;
  counted->kernel = kernel;
  pthread_mutex_lock(&running_lock);
  counted->next = running;
  counted->link = &running;
  if (running)
    running->link = &counted->next;
  running = counted;
  pthread_mutex_unlock(&running_lock);
  counted->begin_ns = vgw_now_ns();
}

/* Log the numbers, then the name, because a long name may be cut. vgpud/cli/kernel_profile.py reads the line. */
void vgx_sim_count_end(struct vgx_sim_counted *counted, uint32_t device, const struct vgx_sim_launch *launch,
                       int32_t result) {
  char counters[VGX_SIM_COUNTERS * 21 + 1];
  int used = 0;
  if (!vgx_sim_counts)
    return;
  uint64_t end_ns = vgw_now_ns();
  pthread_mutex_lock(&running_lock);
  *counted->link = counted->next;
  if (counted->next)
    counted->next->link = counted->link;
  pthread_mutex_unlock(&running_lock);
  for (int i = 0; i < VGX_SIM_COUNTERS; i++)
    used +=
        snprintf(counters + used, sizeof counters - (size_t)used, " %llu", (unsigned long long)counted->counters[i]);
  vgx_sim_log("profile: %d %llu %llu %u %d %u %u %u %u %u %u %u%s %.*s", result, (unsigned long long)counted->begin_ns,
              (unsigned long long)end_ns, device, (int)gettid(), launch->grid[0], launch->grid[1], launch->grid[2],
              launch->block[0], launch->block[1], launch->block[2],
              launch->shared_static_nbytes + launch->shared_dynamic_nbytes, counters, NAME_NBYTES_MAX, counted->kernel);
}

void vgx_sim_count_unfinished(void) {
  pthread_mutex_lock(&running_lock);
  for (const struct vgx_sim_counted *each = running; each; each = each->next)
    vgx_sim_log("profile: unfinished %.*s", NAME_NBYTES_MAX, each->kernel);
  pthread_mutex_unlock(&running_lock);
}
