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

/* Whether the client knows the memory of all these bytes. */
bool vgs_place_is_known(uint64_t address, uint64_t nbytes);

/* Called before the program's memory is read for a copy. A synchronous copy of pageable memory (`known` false) waits
 * for its stream first, as the driver does: the stream's work may be reading or, through mapped memory, writing what
 * the copy changes. An asynchronous copy reads at once. Pinned memory that the worker does not see is read once no
 * earlier host function of the stream can still write it. */
CUresult vgs_copy_wait_readable(uint32_t stream, bool known, bool sync);

/* Whether an address is registered memory that the worker has mapped for writing, so that kernels write to it in stream
 * order. */
bool vgs_copy_is_mapped(uint64_t address, uint64_t *device_address);

/* `*_otherwise`: the kind of memory to assume for an unknown address; `sync`: complete for the host on return. */
struct vgs_copy {
  uint64_t dst, src, nbytes;
  enum vgs_place dst_otherwise, src_otherwise;
  CUstream stream;
  bool sync;
};
CUresult vgs_copy(const struct vgs_copy *copy);

/* Whether an address belongs to host memory that the client knows. */
bool vgs_copy_is_host(uint64_t address);

/* Wait for all work of a context. */
struct vgs_context;
CUresult vgs_synchronize_context(const struct vgs_context *context);

#endif
