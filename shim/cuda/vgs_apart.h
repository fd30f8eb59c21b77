/* Device memory at addresses that this process chooses, for allocations whose addresses from the worker's driver lie
 * over memory of the program (vgs_claim.h). Addresses are reserved in the worker, in windows that are free here and
 * there, and physical memory is mapped into them, in whole granules; allocations of 1 MiB or less share a granule. To
 * the program it is memory of cuMemAlloc or of a pool, but it cannot be shared with other processes by a handle. */
#ifndef VGS_APART_H
#define VGS_APART_H

#include "vgw_cuda.h"
#include <stdbool.h>
#include <stdint.h>

/* Whether memory was made apart before, so that a driver's rejected address need not be asked for again. */
bool vgs_apart_is_open(void);

/* Allocate on a device; the memory lives as long as the current context. The driver last put memory `near`. */
CUresult vgs_apart_alloc(CUdeviceptr *address, CUdevice device, uint64_t nbytes, CUdeviceptr near);

/* Whether memory that begins at an address was allocated here. */
bool vgs_apart_holds(CUdeviceptr address);

/* Free it once its context's work is done, as cuMemFree does; or once the stream's earlier work is done. */
CUresult vgs_apart_free(CUdeviceptr address);
CUresult vgs_apart_free_in_order(CUdeviceptr address, CUstream stream);

/* The current context may now use the memory of a device, as far as it lies here. */
CUresult vgs_apart_open_to_peer(CUdevice owner);

/* The memory of a context that has ended. All of it: the session is lost. */
void vgs_apart_end_context(uint32_t context_id);
void vgs_apart_destroy_all(void);

#endif
