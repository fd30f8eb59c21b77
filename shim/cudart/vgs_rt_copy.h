#ifndef VGS_RT_COPY_H
#define VGS_RT_COPY_H

#include "vgs_rt.h"

enum copy_kind { COPY_HOST_TO_HOST, COPY_HOST_TO_DEVICE, COPY_DEVICE_TO_HOST, COPY_DEVICE_TO_DEVICE, COPY_DEFAULT };

/* The driver's description of a box between linear memory; arrays are not supported. */
int vgs_rt_copy_box(const struct cudaMemcpy3DParms *params, CUDA_MEMCPY3D *out);

/* The same for `nbytes` in a single row. */
int vgs_rt_copy_row(void *dst, const void *src, size_t nbytes, int kind, CUDA_MEMCPY3D *out);

#endif
