/* Managed variables of a driver that places them in the worker's memory: this process has a copy of each at the same
 * address. The copy is sent to the device before a launch and fetched after a synchronisation, which is what CUDA
 * promises for a device without concurrent managed access. */
#ifndef VGS_MIRROR_H
#define VGS_MIRROR_H

#include "vgs_objects.h"

/* Mirror a library's variable on the entered context's device from now on (VGS_MIRRORING); does nothing if it is
 * mirrored already. OUT_OF_MEMORY: the program uses its address. */
CUresult vgs_mirror_add(uint64_t address, uint64_t nbytes, uint32_t library);

/* Called before a library is unloaded: its variables are no longer mirrored. */
void vgs_mirror_remove(uint32_t library);

/* Called before a launch: copy the program's changes to the device in this stream. */
CUresult vgs_mirror_flush(uint32_t stream);

/* Called after a wait, whose result is passed on: fetch the kernels' changes; `all`: the wait was for all streams. */
CUresult vgs_mirror_after(CUresult waited, uint32_t stream, bool all);

/* Called before a copy reads [address, address + nbytes): fetch the changes if a mirrored variable is there. */
CUresult vgs_mirror_before_read(uint64_t address, uint64_t nbytes, uint32_t stream);

void vgs_mirror_fini(void);

#endif
