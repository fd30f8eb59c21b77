/* The program's own allocations, recorded while a tool runs. */
#ifndef VGX_SIM_WATCH_MEMORY_H
#define VGX_SIM_WATCH_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

struct vgx_sim_range {
  uint64_t address, nbytes;
  uint64_t allocated_by, freed_by; /* host call stacks; 0: unknown */
};

void vgx_sim_watch_allocated(uint64_t address, uint64_t nbytes);
void vgx_sim_watch_freed(uint64_t address);
/* The number of allocations so far: after a new one, known ranges may be unwritten again. */
uint64_t vgx_sim_watch_allocations(void);

/* The host call stack that has made the allocation; 0: unknown. */
uint64_t vgx_sim_watch_allocated_by(uint64_t address);
/* The allocation that was freed last at an address. */
bool vgx_sim_find_freed(uint64_t address, struct vgx_sim_range *found);
/* The index-th allocation that the program has not freed; false: there are no more. */
bool vgx_sim_watch_live(uint64_t index, struct vgx_sim_range *found);

#endif
