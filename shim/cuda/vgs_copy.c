#include "vgs_copy.h"
#include "vgs_api.h"
#include "vgs_callback.h"
#include "vgs_capture.h"
#include "vgs_context.h"
#include "vgs_log.h"
#include "vgs_range.h"
#include "vgs_stream.h"
#include <string.h>

CUresult vgs_place_of(uint64_t address, uint64_t nbytes, enum vgs_place otherwise, enum vgs_place *place, bool *known) {
  struct vgs_range range;
  *known = vgs_range_find(address, &range);
  if (!*known) {
    *place = otherwise;
    return address ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  *place = !vgs_range_is_host(&range) ? VGS_PLACE_DEVICE : range.shared ? VGS_PLACE_SHARED : VGS_PLACE_HOST;
  uint64_t left = range.nbytes - (address - range.base);
  while (nbytes > left) { /* mappings of cuMemMap that follow each other are one to the driver; allocations are not */
    if (range.context_id || !vgs_range_find(range.base + range.nbytes, &range) || range.context_id)
      return CUDA_ERROR_INVALID_VALUE;
    left += range.nbytes;
  }
  return CUDA_SUCCESS;
}

/* From the program's memory: the bytes are in the records when this returns, so the program may overwrite them. */
static CUresult to_device(uint64_t dst, const char *src, uint64_t nbytes, uint32_t stream, bool wait) {
  for (uint64_t done = 0; done < nbytes;) {
    uint64_t piece = nbytes - done < VGW_PIECE_NBYTES ? nbytes - done : VGW_PIECE_NBYTES;
    bool last = done + piece == nbytes;
    CUresult result = vgs_send_cuMemcpyHtoDAsync_v2(dst + done, src + done, piece, stream, wait && last);
    if (result)
      return result;
    done += piece;
  }
  return CUDA_SUCCESS;
}

static CUresult to_host(char *dst, uint64_t src, uint64_t nbytes, uint32_t stream) {
  for (uint64_t done = 0; done < nbytes;) {
    uint64_t piece = nbytes - done < VGW_PIECE_NBYTES ? nbytes - done : VGW_PIECE_NBYTES;
    CUresult result = vgs_send_cuMemcpyDtoHAsync_v2(dst + done, src + done, piece, stream);
    if (result)
      return result;
    done += piece;
  }
  return CUDA_SUCCESS;
}

CUresult vgs_copy_settle(uint32_t stream, bool known, bool sync) {
  return vgs_callback_pending() && (known || sync) ? vgs_send_cuStreamSynchronize(stream) : CUDA_SUCCESS;
}

CUresult vgs_copy(const struct vgs_copy *copy) {
  enum vgs_place dst, src;
  bool dst_known, src_known;
  uint32_t stream;
  struct vgs_stream *on;
  CUresult result = vgs_stream_id(copy->stream, &stream, &on);
  if (!result && copy->sync)
    result = vgs_capture_check_unsafe();
  if (result || !copy->nbytes)
    return result;
  if ((result = vgs_place_of(copy->dst, copy->nbytes, copy->dst_otherwise, &dst, &dst_known)) ||
      (result = vgs_place_of(copy->src, copy->nbytes, copy->src_otherwise, &src, &src_known)))
    return result;
  char *host_dst = (char *)(uintptr_t)copy->dst;
  const char *host_src = (const char *)(uintptr_t)copy->src;
  bool dst_device = dst == VGS_PLACE_DEVICE, src_device = src == VGS_PLACE_DEVICE;
  if (on && vgs_capture_status(on->capture) && (dst == VGS_PLACE_HOST || src == VGS_PLACE_HOST)) {
    static bool named; /* each replay would have to read or write the program's memory again */
    return vgs_unimplemented("a copy of pageable memory inside a capture", &named);
  }
  if (!dst_device &&
      !src_device) { /* host to host: what the stream does first may write the source, so it comes first */
    if ((result = vgs_send_cuStreamSynchronize(stream)))
      return result;
    memmove(host_dst, host_src, copy->nbytes);
    return CUDA_SUCCESS;
  }
  /* A device address nobody told us of (a variable found by a kernel) is judged by the worker: ask for its answer at
   * once. */
  bool doubtful = (dst_device && !dst_known) || (src_device && !src_known);
  if (dst_device && src_device)
    return vgs_send_cuMemcpyDtoDAsync_v2(copy->dst, copy->src, copy->nbytes, stream, doubtful);
  if (dst == VGS_PLACE_HOST)
    return to_host(host_dst, copy->src, copy->nbytes, stream);
  if (src == VGS_PLACE_HOST) {
    result = vgs_copy_settle(stream, src_known, copy->sync);
    return result ? result : to_device(copy->dst, host_src, copy->nbytes, stream, doubtful);
  }
  enum { TO_DEVICE = 1, TO_HOST = 2 }; /* one side is pinned memory that the worker reads or writes in place */
  result =
      vgs_send_vgpuMemcpyPinned(copy->dst, copy->src, copy->nbytes, dst_device ? TO_DEVICE : TO_HOST, stream, doubtful);
  if (!result && copy->sync)
    result = vgs_send_cuStreamSynchronize(stream);
  return result;
}

/* --- the API's forms --- */

static CUresult copy_as(uint64_t dst, enum vgs_place dst_place, uint64_t src, enum vgs_place src_place, size_t nbytes,
                        CUstream stream, bool sync) {
  struct vgs_copy copy = {.dst = dst,
                          .src = src,
                          .nbytes = nbytes,
                          .dst_otherwise = dst_place,
                          .src_otherwise = src_place,
                          .stream = stream,
                          .sync = sync};
  return vgs_copy(&copy);
}

CUresult vgs_cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream) {
  return copy_as(dstDevice, VGS_PLACE_DEVICE, (uintptr_t)srcHost, VGS_PLACE_HOST, ByteCount, hStream, false);
}

CUresult vgs_cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount) {
  return copy_as(dstDevice, VGS_PLACE_DEVICE, (uintptr_t)srcHost, VGS_PLACE_HOST, ByteCount, vgs_stream_default(),
                 true);
}

CUresult vgs_cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  return copy_as((uintptr_t)dstHost, VGS_PLACE_HOST, srcDevice, VGS_PLACE_DEVICE, ByteCount, vgs_stream_default(),
                 true);
}

CUresult vgs_cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream) {
  return copy_as((uintptr_t)dstHost, VGS_PLACE_HOST, srcDevice, VGS_PLACE_DEVICE, ByteCount, hStream, false);
}

CUresult vgs_cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream) {
  return copy_as(dstDevice, VGS_PLACE_DEVICE, srcDevice, VGS_PLACE_DEVICE, ByteCount, hStream, false);
}

CUresult vgs_cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
  return copy_as(dstDevice, VGS_PLACE_DEVICE, srcDevice, VGS_PLACE_DEVICE, ByteCount, vgs_stream_default(), false);
}

/* Unified addresses: what the client does not know is the program's own memory. */
CUresult vgs_cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
  return copy_as(dst, VGS_PLACE_HOST, src, VGS_PLACE_HOST, ByteCount, vgs_stream_default(), true);
}

CUresult vgs_cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {
  return copy_as(dst, VGS_PLACE_HOST, src, VGS_PLACE_HOST, ByteCount, hStream, false);
}

CUresult vgs_cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
                               size_t ByteCount, CUstream hStream) {
  struct vgs_context *dst = vgs_context_find(dstContext), *src = vgs_context_find(srcContext);
  if (!dst || !src)
    return CUDA_ERROR_INVALID_CONTEXT;
  if (dst->device != src->device)
    return CUDA_ERROR_NOT_SUPPORTED; /* copies between devices are not offered yet */
  return copy_as(dstDevice, VGS_PLACE_DEVICE, srcDevice, VGS_PLACE_DEVICE, ByteCount, hStream, false);
}

CUresult vgs_cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
                          size_t ByteCount) {
  return vgs_cuMemcpyPeerAsync(dstDevice, dstContext, srcDevice, srcContext, ByteCount, vgs_stream_default());
}
