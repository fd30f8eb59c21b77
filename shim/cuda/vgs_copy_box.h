/* Copies of rectangles and boxes. */
#ifndef VGS_COPY_BOX_H
#define VGS_COPY_BOX_H

#include "vgw_cuda.h"
#include <stdbool.h>
#include <stdint.h>

/* A copy between places that the worker reaches: device memory and pinned memory it sees. */
struct vgs_copy_in_place {
  uint64_t dst, dst_pitch, dst_rows, src, src_pitch, src_rows; /* bytes from row to row, rows from slice to slice */
  uint64_t width, height, depth;
};
/* With the parameters of the driver's functions; `sync`: complete for the host on return. */
CUresult vgs_copy_2d(const CUDA_MEMCPY2D *copy, CUstream stream, bool sync);
CUresult vgs_copy_3d(const CUDA_MEMCPY3D *copy, CUstream stream, bool sync);
CUresult vgs_copy_3d_peer(const CUDA_MEMCPY3D_PEER *copy, CUstream stream, bool sync);

struct vgs_captured_copy;
/* Resolve parameters. *in_place is false if the worker does not reach one side; the result is then in `other`. */
CUresult vgs_copy_resolve(const CUDA_MEMCPY3D *params, bool *in_place, struct vgs_copy_in_place *copy,
                          struct vgs_captured_copy *other);

#endif
