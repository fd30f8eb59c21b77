/* Copies. */
#ifndef VGX_SIM_COPY_H
#define VGX_SIM_COPY_H

#include "vgx_sim_internal.h"

/* A position in an array, x in bytes; `array` NULL: memory. */
struct vgx_sim_place {
  CUarray array;
  uint64_t x, y, z;
};
struct vgx_sim_box {
  uint8_t *dst;
  const uint8_t *src;
  uint64_t dst_pitch, dst_slice, src_pitch, src_slice; /* bytes from row to row, from plane to plane */
  uint64_t width, height, depth;                       /* bytes, rows, planes */
  struct vgx_sim_place dst_place, src_place;           /* for queries of the parameters */
};
/* Enqueue a copy whose ranges have been checked. A synchronous call returns when the source may be changed and, if the
 * destination is host memory, when it is complete; so does an asynchronous one for memory that is not registered. */
CUresult vgx_sim_submit_box(CUstream stream, const struct vgx_sim_box *box, bool synchronous);

/* Create a copy without submitting it. Host memory is read and written when it runs. */
CUresult vgx_sim_copy_create(CUcontext ctx, const CUDA_MEMCPY3D *copy, struct vgx_sim_op **op);

/* The parameters of a copy. */
void vgx_sim_copy_params(const struct vgx_sim_op *op, CUDA_MEMCPY3D *params);

/* The synchronous forms, here for tests/vgpusim/device. */
CUresult vgx_sim_cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount);
CUresult vgx_sim_cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount);
CUresult vgx_sim_cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount);
CUresult vgx_sim_cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount);
CUresult vgx_sim_cuMemcpy2D_v2(const CUDA_MEMCPY2D *pCopy);

#endif
