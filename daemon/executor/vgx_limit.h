/* A bound of device memory for a session on real cards (`memory_mib` of its tenant's share). */
#ifndef VGX_LIMIT_H
#define VGX_LIMIT_H

#include <stdint.h>

struct vgw_ledger;
struct vgx_backend;

/* The same backend, whose functions that allocate device memory answer OUT_OF_MEMORY above the limit, and which shows
 * the limit as the device's memory. Arguments: vgx_charge_init(). Once in a process. */
const struct vgx_backend *vgx_limit_backend(const struct vgx_backend *backend, struct vgw_ledger *ledger, uint32_t row,
                                            uint64_t limit_nbytes, const uint8_t *host_devices, uint32_t count);

#endif
