/* Managed variables of a driver that lays them into memory of the worker's: this process has a copy of each at the same
 * address. It is brought to the device before a launch, and back after a synchronisation, which is all that a device
 * without concurrent managed access promises. */
#ifndef VGS_MIRROR_H
#define VGS_MIRROR_H

#include "vgs_objects.h"

/* Whether there are any: for the paths that every launch and wait takes. */
extern int vgs_mirrors; /* atomic */
static inline bool vgs_mirror_any(void) { return __atomic_load_n(&vgs_mirrors, __ATOMIC_ACQUIRE); }

/* A library's variable, on the entered context's device, from now on. Again: nothing. OUT_OF_MEMORY: its address is the
 * program's. */
CUresult vgs_mirror_add(uint64_t address, uint64_t nbytes, uint32_t library);

/* Before a library goes: its variables are the program's memory alone. */
void vgs_mirror_remove(uint32_t library);

/* What the program has changed goes to the device in this stream, before a launch. */
CUresult vgs_mirror_flush(uint32_t stream);

/* What kernels have changed comes back after a wait, whose result is passed on; `all`: for all streams. */
CUresult vgs_mirror_after(CUresult waited, uint32_t stream, bool all);

/* Before the program's copy of [address, address + nbytes) is read for it. */
CUresult vgs_mirror_before_read(uint64_t address, uint64_t nbytes, uint32_t stream);

void vgs_mirror_fini(void);

#endif
