/* Mappings of physical memory. */
#ifndef VGX_SIM_VIRTUAL_H
#define VGX_SIM_VIRTUAL_H

#include "vgx_sim_internal.h"

/* The accessible mapping that holds `address`, with those that follow it. */
bool vgx_sim_virtual_find(uint64_t address, struct vgx_sim_allocation *found);

#endif
