/* The sanitizer's look at memory. */
#ifndef VGX_SIM_MEMORY_H
#define VGX_SIM_MEMORY_H

#include "vgx_sim_watch.h"

/* What holds an address, or lies nearest to it; false: nothing is known there. */
bool vgx_sim_look(uint64_t address, struct vgx_sim_placed *found);

#endif
