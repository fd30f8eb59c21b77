/* Which bytes of device memory have been written: see vgx_sim_defined.c. */
#ifndef VGX_SIM_DEFINED_H
#define VGX_SIM_DEFINED_H

#include <stdbool.h>
#include <stdint.h>

extern uint32_t vgx_sim_tools; /* the sanitizer's active tools, bits of vgx_sim_watch.h; set before the first launch */

void vgx_sim_set_defined(uint64_t address, uint64_t nbytes, bool defined);
bool vgx_sim_is_defined(uint64_t address, uint64_t nbytes);
/* The host or a kernel writes these bytes: mark them as defined. Does nothing unless initcheck is on. */
void vgx_sim_watch_defined(uint64_t address, uint64_t nbytes);

#endif
