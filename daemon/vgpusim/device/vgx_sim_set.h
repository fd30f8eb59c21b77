/* Fills. */
#ifndef VGX_SIM_SET_H
#define VGX_SIM_SET_H

#include "vgx_sim_internal.h"

/* Create a fill without submitting it. */
CUresult vgx_sim_fill_create(const CUDA_MEMSET_NODE_PARAMS *params, struct vgx_sim_op **op);

/* The parameters of the fill. The pointers are valid as long as the operation. */
void vgx_sim_fill_params(const struct vgx_sim_op *op, CUDA_MEMSET_NODE_PARAMS *params);

/* The synchronous forms, here for tests/vgpusim/device. */
CUresult vgx_sim_cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N);
CUresult vgx_sim_cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N);
CUresult vgx_sim_cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N);
CUresult vgx_sim_cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height);
CUresult vgx_sim_cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height);

#endif
