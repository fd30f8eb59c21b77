/* Copies to and from arrays. */
#ifndef VGS_ARRAY_COPY_H
#define VGS_ARRAY_COPY_H

#include "vgw_cuda.h"
#include <stdbool.h>

struct vgs_captured_copy;

/* Copy where the source, the destination or both are arrays. The caller has made the checks that are common to all
 * copies. */
CUresult vgs_array_copy(const CUDA_MEMCPY3D *copy, CUstream stream, bool sync);

/* Resolve the parameters of such a copy, for a graph. *in_place: the worker reaches both sides. */
CUresult vgs_array_copy_resolve(const CUDA_MEMCPY3D *copy, bool *in_place, struct vgs_captured_copy *resolved);

#endif
