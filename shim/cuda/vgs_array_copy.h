/* Copies to and from arrays. */
#ifndef VGS_ARRAY_COPY_H
#define VGS_ARRAY_COPY_H

#include "vgw_cuda.h"
#include <stdbool.h>

/* A copy of which at least one side is an array; the parameters are checked as far as any copy's. */
CUresult vgs_array_copy(const CUDA_MEMCPY3D *copy, CUstream stream, bool sync);

#endif
