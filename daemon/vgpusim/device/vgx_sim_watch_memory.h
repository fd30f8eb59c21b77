/* What the program has allocated itself. Without a tool nothing is noted. */
#ifndef VGX_SIM_WATCH_MEMORY_H
#define VGX_SIM_WATCH_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

struct vgx_sim_range {
  uint64_t address, nbytes;
};

void vgx_sim_watch_allocated(uint64_t address, uint64_t nbytes);
void vgx_sim_watch_freed(uint64_t address);
/* How often something was allocated: what was written before may not be now. */
uint64_t vgx_sim_watch_allocations(void);

/* What was freed there last. */
bool vgx_sim_find_freed(uint64_t address, struct vgx_sim_range *found);
/* The index-th allocation that the program has not freed; false: there are no more. */
bool vgx_sim_watch_live(uint64_t index, struct vgx_sim_range *found);

#endif
