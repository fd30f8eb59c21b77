#ifndef VGX_CUDA_IPC_H
#define VGX_CUDA_IPC_H

#include "vgx_backend.h"

/* Fill in the table's ipc_export and ipc_open from the real libcuda. */
void vgx_cuda_ipc_resolve(void *library, struct vgx_backend *backend);

#endif
