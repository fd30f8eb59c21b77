/* Copies to and from arrays. */
#ifndef VGS_ARRAY_COPY_H
#define VGS_ARRAY_COPY_H

#include "vgw_cuda.h"
#include <stdbool.h>

/* Copy where the source, the destination or both are arrays. The caller has made the checks that are common to all
 * copies. */
CUresult vgs_array_copy(const CUDA_MEMCPY3D *copy, CUstream stream, bool sync);

#endif
