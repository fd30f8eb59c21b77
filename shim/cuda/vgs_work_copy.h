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

/* A copy in a capture, of which at least one side is the program's memory, or none the device's. */
struct vgs_captured_copy {
  struct vgs_rows dst, src;
  uint64_t width, height, depth; /* bytes, rows, slices */
  bool pageable;                 /* a side is memory that the program neither allocated nor registered as pinned */
  uint32_t stream;               /* wire id */
  uint64_t capture;
};
CUresult vgs_work_capture_copy(const struct vgs_captured_copy *copy);

/* Such a copy as a node: our work, and the device's own part, which is nothing (width 0) when that has none. The caller
 * keeps the work until it is released. */
CUresult vgs_work_copy(const struct vgs_captured_copy *copy, struct vgs_work **work, struct vgs_copy_in_place *device);

#endif
