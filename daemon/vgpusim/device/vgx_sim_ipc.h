/* Sharing allocations and pools with another simulator's process: members of struct vgx_backend. */
#ifndef VGX_SIM_IPC_H
#define VGX_SIM_IPC_H

#include "vgx_backend.h"

CUresult vgx_sim_ipc_export(struct vgx_ipc_object *object, CUdeviceptr base);
CUresult vgx_sim_ipc_open(CUdeviceptr *base, const struct vgx_ipc_object *object, unsigned int flags);
CUresult vgx_sim_pool_export(struct vgx_ipc_object *object, CUmemoryPool pool);
CUresult vgx_sim_pool_open(CUmemoryPool *pool, const struct vgx_ipc_object *object);
CUresult vgx_sim_pointer_export(struct vgx_ipc_object *object, CUdeviceptr address);
CUresult vgx_sim_pointer_open(CUdeviceptr *address, CUmemoryPool pool, const struct vgx_ipc_object *object);

#endif
