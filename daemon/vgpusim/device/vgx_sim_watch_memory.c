/* The program's own allocations: to report leaks, and the former allocation at a freed address. */
#include <pthread.h>
#include <stdlib.h>

#include "vgx_sim_activity.h"
#include "vgx_sim_defined.h"
#include "vgx_sim_watch_memory.h"

#define FREED_MAX 4096u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* a leaf */
static struct vgx_sim_range *live;
static uint64_t count, room;
static struct vgx_sim_range freed[FREED_MAX]; /* a ring: what was freed last */
static uint32_t freed_next;

static uint64_t allocations; /* atomic */

uint64_t vgx_sim_watch_allocations(void) { return __atomic_load_n(&allocations, __ATOMIC_ACQUIRE); }

void vgx_sim_watch_allocated(uint64_t address, uint64_t nbytes) {
  if (!vgx_sim_tools)
    return;
  vgx_sim_set_defined(address, nbytes, false);
  __atomic_add_fetch(&allocations, 1, __ATOMIC_RELEASE);
  pthread_mutex_lock(&lock);
  if (count == room) {
    struct vgx_sim_range *grown = realloc(live, (room + 256) * sizeof *live);
    if (grown) {
      live = grown;
      room += 256;
    }
  }
  if (count < room)
    live[count++] = (struct vgx_sim_range){.address = address, .nbytes = nbytes, .allocated_by = vgx_sim_host_stack()};
  pthread_mutex_unlock(&lock);
}

void vgx_sim_watch_freed(uint64_t address) {
  if (!vgx_sim_tools)
    return;
  pthread_mutex_lock(&lock);
  for (uint64_t i = count; i-- > 0;)
    if (live[i].address == address) {
      live[i].freed_by = vgx_sim_host_stack();
      freed[freed_next++ % FREED_MAX] = live[i];
      live[i] = live[--count];
      break;
    }
  pthread_mutex_unlock(&lock);
}

bool vgx_sim_find_freed(uint64_t address, struct vgx_sim_range *found) {
  bool hit = false;
  pthread_mutex_lock(&lock);
  for (uint32_t i = 1; i <= FREED_MAX && !hit; i++) {
    const struct vgx_sim_range *r = &freed[(freed_next - i) % FREED_MAX];
    hit = r->nbytes && address >= r->address && address - r->address < r->nbytes;
    if (hit)
      *found = *r;
  }
  pthread_mutex_unlock(&lock);
  return hit;
}

uint64_t vgx_sim_watch_allocated_by(uint64_t address) {
  uint64_t by = 0;
  pthread_mutex_lock(&lock);
  for (uint64_t i = count; i-- > 0 && !by;)
    by = live[i].address == address ? live[i].allocated_by : 0;
  pthread_mutex_unlock(&lock);
  return by;
}

bool vgx_sim_watch_live(uint64_t index, struct vgx_sim_range *found) {
  pthread_mutex_lock(&lock);
  bool hit = index < count;
  if (hit)
    *found = live[index];
  pthread_mutex_unlock(&lock);
  return hit;
}
