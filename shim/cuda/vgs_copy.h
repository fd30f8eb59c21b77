/* Copies between addresses of any kind. */
#ifndef VGS_COPY_H
#define VGS_COPY_H

#include "vgw_cuda.h"
#include <stdbool.h>
#include <stdint.h>

enum vgs_place {
  VGS_PLACE_HOST,   /* the program's memory: bytes travel */
  VGS_PLACE_SHARED, /* pinned memory the worker sees at the same address */
  VGS_PLACE_DEVICE,
};

/* The kind of memory of `nbytes` at an address; `otherwise` for unknown addresses. INVALID_VALUE if the address is
 * known and the bytes reach beyond its allocation or its contiguous mappings. */
CUresult vgs_place_of(uint64_t address, uint64_t nbytes, enum vgs_place otherwise, enum vgs_place *place, bool *known);

/* Before bytes are read from the program's memory for a copy. A synchronous copy of pageable memory (`known` false)
 * waits for its stream first, as the driver does: what runs there may be reading or, by mapped memory, writing what the
 * copy changes. An asynchronous one reads at once. Pinned memory that the worker does not see is read once no host
 * function that comes first in the stream can still write it. */
CUresult vgs_copy_wait_readable(uint32_t stream, bool known, bool sync);

/* What the caller knows of the two sides; `sync` calls are complete for the host when they return. */
struct vgs_copy {
  uint64_t dst, src, nbytes;
  enum vgs_place dst_otherwise, src_otherwise;
  CUstream stream;
  bool sync;
};
CUresult vgs_copy(const struct vgs_copy *copy);

/* Whether an address is one of host memory that the client knows. */
bool vgs_copy_is_host(uint64_t address);

#endif
