/* Creating and destroying contexts. */
#ifndef VGX_SIM_CONTEXT_H
#define VGX_SIM_CONTEXT_H

#include "vgx_sim_internal.h"

/* Functions that the client answers itself; here for tests/vgpusim/device. */
CUresult vgx_sim_cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags);
CUresult vgx_sim_cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active);
CUresult vgx_sim_cuCtxGetCurrent(CUcontext *pctx);

/* Where the configured devices' allocations of this session begin (vgx_sim_arena_start); `epoch` is wire.md's. */
void vgx_sim_set_epoch(uint32_t epoch);

#endif
