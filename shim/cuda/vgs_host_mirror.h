/* Host memory that kernels reach where it is not shared: on a channel without shared memory, and variables on a stack
 * on any channel. The worker has a copy of it, whose address is the device's; for pinned and managed memory that is the
 * program's own. What the program has changed is written to the copy before launches and waits, and what kernels have
 * changed is fetched after waits. Memory has a copy only once a kernel may reach it: most pinned memory is only ever
 * copied. */
#ifndef VGS_HOST_MIRROR_H
#define VGS_HOST_MIRROR_H

#include "vgs_range.h"

/* Map pinned or managed memory (whole pages) of this process alone, at an address that is free in the worker, too.
 * False: there is none, or no memory. */
bool vgs_host_mirror_map(uint64_t nbytes, void **memory);

/* Give a range of host memory a copy in the worker; sets the range's device address. Does nothing if it has one.
 * OUT_OF_MEMORY: also for more than vgpud maps for a tenant. */
CUresult vgs_host_mirror_add(struct vgs_range *range);

/* Give a copy to pinned memory that an address lies in, or each of the words in `data` that is such an address. */
CUresult vgs_host_mirror_expose(uint64_t address);
CUresult vgs_host_mirror_expose_words(const void *data, uint64_t nbytes);

/* Write the program's changes to the copies. `quiet`: no kernel has run since the last fetch, so that bytes between
 * changed ones may be written, too. */
CUresult vgs_host_mirror_push(bool quiet);

/* Fetch what kernels have changed; they have been waited for. */
CUresult vgs_host_mirror_fetch(void);

/* Whether some of these bytes have a copy. */
bool vgs_host_mirror_has(uint64_t address, uint64_t nbytes);

/* The program's address for a device address of registered memory; any other address stays what it is. */
uint64_t vgs_host_mirror_host_address(uint64_t address);

/* Drop the copy of the memory at `base`, after waiting for the context. False: it has none. */
bool vgs_host_mirror_remove(uint64_t base, CUresult *result);

void vgs_host_mirror_fini(void);

#endif
