/* Racecheck outside of shared memory: see vgx_sim_race_global.c. */
#ifndef VGX_SIM_RACE_GLOBAL_H
#define VGX_SIM_RACE_GLOBAL_H

#include "vgx_sim_race_order.h"

/* A row: bytes without gaps that lanes access one after another, 1 << log2_nbytes each, from `lane` on. */
void vgx_sim_race_in_global(struct vgx_sim_race_access *a, uint64_t address, uint64_t nbytes, uint32_t lane,
                            uint32_t log2_nbytes);
void vgx_sim_race_clear_global(void);

#endif
