/* The device's heap: malloc and free in kernels. */
#ifndef VGX_SIM_HEAP_H
#define VGX_SIM_HEAP_H

#include "vgx_sim_internal.h"

void *vgx_sim_heap_allocate(CUcontext ctx, uint64_t nbytes);
bool vgx_sim_heap_free(CUcontext ctx, void *pointer); /* false: not a live block */
void vgx_sim_heap_destroy(struct vgx_sim_heap *heap);

#endif
