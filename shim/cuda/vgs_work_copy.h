/* Copies of memory that the worker does not reach, as work of a graph (vgs_work.h). */
#ifndef VGS_WORK_COPY_H
#define VGS_WORK_COPY_H

#include "vgs_copy.h"
#include "vgs_copy_box.h"
#include "vgs_work.h"

/* One side of a copy. An array's place is the device. */
struct vgs_rows {
  enum vgs_place place;
  struct vgs_copy_side at;
};

/* A copy in a capture where a side is the program's memory, or neither is device memory. */
struct vgs_captured_copy {
  struct vgs_rows dst, src;
  uint64_t width, height, depth; /* bytes, rows, slices */
  bool pageable;                 /* one side is pageable: neither allocated nor registered as pinned */
  uint32_t stream;               /* wire id */
  uint64_t capture;
};
CUresult vgs_work_capture_copy(const struct vgs_captured_copy *copy);

/* Such a copy as a node: the worker's node is a child graph of two halves, a host function of this process and the
 * device's part. */
struct vgs_copy_halves {
  struct vgs_work *work;    /* the caller's reference */
  struct vgs_object *graph; /* of which the node gets a copy */
};
CUresult vgs_copy_halves_init(struct vgs_copy_halves *halves, uint32_t context, const struct vgs_captured_copy *copy);
void vgs_copy_halves_fini(struct vgs_copy_halves *halves); /* also after init has failed */
#define VGS_COPY_HALVES __attribute__((cleanup(vgs_copy_halves_fini))) struct vgs_copy_halves

/* The halves alone, for a node that exists: the device's part has a width of 0 if there is none. */
CUresult vgs_copy_halves_work(const struct vgs_captured_copy *copy, struct vgs_work **work,
                              struct vgs_copy_in_place *device);

/* The parameters of the copy that a callback makes. False: it is not such a callback. */
bool vgs_work_copy_params(uint32_t callback, CUDA_MEMCPY3D *params);

#endif
