/* The simulator's driver functions, with the real driver's signatures. Results are the real driver's too (those of an
 * H100 with driver 580). The current context is the calling thread's. Out-parameters are written only on success. */
#ifndef VGX_SIM_DRIVER_H
#define VGX_SIM_DRIVER_H

#include "vgx_sim_table.h"

/* Not the executor's, but tests/vgpusim/device's: what clients answer themselves, and copies and fills that wait. */
CUresult vgx_sim_cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags);
CUresult vgx_sim_cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active);
CUresult vgx_sim_cuCtxGetCurrent(CUcontext *pctx);
CUresult vgx_sim_cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags);
CUresult vgx_sim_cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount);
CUresult vgx_sim_cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount);
CUresult vgx_sim_cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount);
CUresult vgx_sim_cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount);
CUresult vgx_sim_cuMemcpy2D_v2(const CUDA_MEMCPY2D *pCopy);
CUresult vgx_sim_cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N);
CUresult vgx_sim_cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N);
CUresult vgx_sim_cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N);
CUresult vgx_sim_cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height);
CUresult vgx_sim_cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height);

#endif
