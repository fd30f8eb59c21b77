/* Pools. */
#ifndef VGS_POOL_H
#define VGS_POOL_H

#include "vgs_objects.h"
#include "vgs_range.h"

/* Whether a pool is its device's own, which cannot be destroyed. */
bool vgs_pool_is_default(const struct vgs_pool *pool);

/* The kind of range that an allocation in a stream becomes: in a capture, the graph's memory. NULL: the default stream.
 */
enum vgs_range_kind vgs_pool_range_kind(const struct vgs_stream *stream);

/* Set the pool that cuDeviceGetMemPool returns. */
void vgs_pool_set_current(CUdevice device, CUmemoryPool pool);

#endif
