/* Memory pools. */
#ifndef VGX_SIM_MEMPOOL_H
#define VGX_SIM_MEMPOOL_H

#include "vgx_sim_internal.h"

/* A pool's allocation is gone (runtime lock held). */
void vgx_sim_pool_uncharge_locked(CUmemoryPool pool, uint64_t nbytes);

/* Whether other processes may have it. */
bool vgx_sim_pool_is_shared(CUmemoryPool pool);
/* Another process's allocation is about to be mapped as this pool's. False: the pool is not one that was imported. */
bool vgx_sim_pool_charge_import(CUmemoryPool pool, uint64_t nbytes);
/* Another process's pool on this device: it gives no memory. */
CUresult vgx_sim_pool_import(CUmemoryPool *pool, struct vgx_sim_device *device);
void vgx_sim_pool_init(CUmemoryPool pool, struct vgx_sim_device *device);

#endif
