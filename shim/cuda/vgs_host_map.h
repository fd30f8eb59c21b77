/* Host memory that the worker maps at the same address and the device reaches. */
#ifndef VGS_HOST_MAP_H
#define VGS_HOST_MAP_H

#include "vgw_cuda.h"
#include <stdbool.h>
#include <stdint.h>

/* Map shared memory (whole pages) here and in the worker, registered in the current context. An error is not reported
 * to the program: the caller does without shared memory. vgs_send_vgpuHostUnmap and munmap undo it. */
CUresult vgs_host_map(uint64_t nbytes, void **memory);

/* Map whole pages of a file in memory in the worker alone, at an address of the window: if possible at *address, where
 * that lies in the window, as memory of a vgpud's worker whose driver is this library does (tests/relayed).
 * NOT_SUPPORTED: the file is not in memory. */
CUresult vgs_host_map_file(uint64_t nbytes, int fd, uint64_t offset, bool read_only, uint64_t *address);

/* Reserve memory of the worker alone at an address of the window; nothing is mapped in this process. */
CUresult vgs_host_reserve(uint64_t nbytes, uint64_t *address);

#endif
