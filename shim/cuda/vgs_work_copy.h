/* Copies of memory that the worker does not reach, as work of a graph (vgs_work.h). */
#ifndef VGS_WORK_COPY_H
#define VGS_WORK_COPY_H

#include "vgs_copy.h"
#include "vgs_copy_box.h"
#include "vgs_work.h"

/* One side of a copy. */
struct vgs_rows {
  enum vgs_place place;
  uint64_t address;
  uint64_t pitch, slice; /* bytes from row to row, and from slice to slice */
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

/* Make the parts of such a copy for a graph node: the work of this process, and the device's part, whose width is 0 if
 * there is none. The caller owns a reference to the work. */
CUresult vgs_work_copy(const struct vgs_captured_copy *copy, struct vgs_work **work, struct vgs_copy_in_place *device);

#endif
