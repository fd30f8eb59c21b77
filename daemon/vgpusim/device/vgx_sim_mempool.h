/* Memory pools. */
#ifndef VGX_SIM_MEMPOOL_H
#define VGX_SIM_MEMPOOL_H

#include "vgx_sim_internal.h"

/* Subtract a freed allocation from its pool's use (runtime lock held). */
void vgx_sim_pool_uncharge_locked(CUmemoryPool pool, uint64_t nbytes);

/* Whether other processes may open the pool. */
bool vgx_sim_pool_is_shared(CUmemoryPool pool);
/* Count another process's allocation, before it is mapped, in this pool. False: the pool was not imported. */
bool vgx_sim_pool_charge_import(CUmemoryPool pool, uint64_t nbytes);
/* Create a pool for another process's pool on this device; it cannot allocate. */
CUresult vgx_sim_pool_import(CUmemoryPool *pool, struct vgx_sim_device *device);
void vgx_sim_pool_init(CUmemoryPool pool, struct vgx_sim_device *device);

#endif
