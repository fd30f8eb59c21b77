/* The part of vgx_limit.c for memory of pools, and for what may still be allocated. */
#ifndef VGX_LIMIT_POOL_H
#define VGX_LIMIT_POOL_H

#include "vgx_backend.h"

struct vgx_charge_entry;

extern const struct vgx_backend *vgx_limit_real; /* the backend without the bound */

/* The device of the current context; -1: there is none. */
CUdevice vgx_limit_device(void);

/* Replace functions of `limited`, a copy of `backend`. */
void vgx_limit_pools(const struct vgx_backend *backend, struct vgx_backend *limited);

/* Count what the driver has reserved for pools and graphs as of now. */
void vgx_limit_look(CUdevice device);

/* An executable graph is destroyed, or could not be: `entry` is what counted for it on a device, or NULL. What the
 * driver keeps of its memory still counts. */
void vgx_limit_graph_ends(CUdevice device, struct vgx_charge_entry *entry, bool destroyed);

/* Called before a context is destroyed: its streams are not to be asked about any more. */
void vgx_limit_context_ends(void);

/* Count bytes of a device. If they are too many, the driver first frees what it has reserved for later. Returns
 * CUDA_ERROR_OUT_OF_MEMORY if they still are, which the client is told once. */
CUresult vgx_limit_reserve(CUdevice device, uint64_t nbytes);

/* CUDA_ERROR_OUT_OF_MEMORY, and tell the client why, once. 0: of a context or module, whose size the driver chooses. */
CUresult vgx_limit_refuse(CUdevice device, uint64_t nbytes);

/* Bytes that count and that the device has: of graphs that are not launched yet it has none. */
uint64_t vgx_limit_present(CUdevice device);

#endif
