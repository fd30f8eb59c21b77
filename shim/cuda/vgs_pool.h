/* Pools. */
#ifndef VGS_POOL_H
#define VGS_POOL_H

#include "vgs_objects.h"

/* Whether a pool is its device's own, which cannot be destroyed. */
bool vgs_pool_is_default(const struct vgs_pool *pool);

/* What cuDeviceGetMemPool answers from now on. */
void vgs_pool_set_current(CUdevice device, CUmemoryPool pool);

#endif
