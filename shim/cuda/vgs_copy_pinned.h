/* Copies between device memory and pinned memory that the worker sees. */
#ifndef VGS_COPY_PINNED_H
#define VGS_COPY_PINNED_H

#include "vgs_api.h"

/* `wait`: wait for the worker's result. */
static inline CUresult vgs_copy_pinned(bool to_host, uint64_t dst, uint64_t src, uint64_t nbytes, uint32_t stream,
                                       bool wait) {
  return to_host ? vgs_send_vgpuMemcpyPinnedToHost(dst, src, nbytes, stream, wait)
                 : vgs_send_vgpuMemcpyPinnedToDevice(dst, src, nbytes, stream, wait);
}

#endif
