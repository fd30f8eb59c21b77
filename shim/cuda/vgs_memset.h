/* Fills of device memory and of pinned memory. */
#ifndef VGS_MEMSET_H
#define VGS_MEMSET_H

#include "vgw_cuda.h"
#include <stdbool.h>
#include <stdint.h>

struct vgs_fill {
  uint64_t address, pitch, width, height; /* width in elements; pitch is used from the second row on */
  unsigned element_nbytes;
  uint32_t stream;
  bool empty;   /* checked no further */
  bool unknown; /* the worker must judge the address */
  bool local;   /* pinned memory that the worker cannot see */
  bool host;    /* pinned memory of either kind, or what CU_POINTER_ATTRIBUTE_SYNC_MEMOPS is set for */
};

/* Check the arguments, and set the other members. INVALID_VALUE: not aligned, or not inside one allocation. */
CUresult vgs_fill_check(struct vgs_fill *fill);

/* Fill memory that is `local`, once the stream is done with it. */
CUresult vgs_fill_here(const struct vgs_fill *fill, uint32_t value);

#endif
