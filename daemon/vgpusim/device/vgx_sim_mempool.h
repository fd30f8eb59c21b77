/* Memory pools. */
#ifndef VGX_SIM_MEMPOOL_H
#define VGX_SIM_MEMPOOL_H

#include "vgx_sim_internal.h"

/* A pool's allocation is gone (runtime lock held). */
void vgx_sim_pool_uncharge_locked(CUmemoryPool pool, uint64_t nbytes);
void vgx_sim_pool_init(CUmemoryPool pool, struct vgx_sim_device *device);

#endif
