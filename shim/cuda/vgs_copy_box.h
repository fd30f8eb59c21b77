/* Copies of rectangles and boxes. */
#ifndef VGS_COPY_BOX_H
#define VGS_COPY_BOX_H

#include "vgw_cuda.h"
#include <stdbool.h>
#include <stdint.h>

/* A side of a copy that the worker reaches: device memory and pinned memory it sees, or an array. */
struct vgs_copy_side {
  uint64_t address, pitch, rows; /* of memory: bytes from row to row, rows from slice to slice */
  uint64_t x, y, z;              /* in an array; x in bytes */
  uint32_t array;                /* wire id; 0: memory */
};
struct vgs_copy_in_place {
  struct vgs_copy_side dst, src;
  uint64_t width, height, depth; /* bytes, rows, slices */
};
#define VGS_COPY_SIDE(s) (s).address, (s).pitch, (s).rows, (s).x, (s).y, (s).z
/* The parameters of the functions of marshalling for such a copy. */
#define VGS_COPY_SENT(c)                                                                                               \
  VGS_COPY_SIDE((c).dst), VGS_COPY_SIDE((c).src), (c).width, (c).height, (c).depth, (c).dst.array, (c).src.array

/* With the parameters of the driver's functions; `sync`: complete for the host on return. */
CUresult vgs_copy_2d(const CUDA_MEMCPY2D *copy, CUstream stream, bool sync);
CUresult vgs_copy_3d(const CUDA_MEMCPY3D *copy, CUstream stream, bool sync);
CUresult vgs_copy_3d_peer(const CUDA_MEMCPY3D_PEER *copy, CUstream stream, bool sync);

struct vgs_captured_copy;
/* Resolve parameters. *in_place: the worker reaches both sides, and `copy` is set. `other` is set in any case. */
CUresult vgs_copy_resolve(const CUDA_MEMCPY3D *params, bool *in_place, struct vgs_copy_in_place *copy,
                          struct vgs_captured_copy *other);

#endif
