#include "vgs_copy.h"
#include "vgs_api.h"
#include "vgs_area.h"
#include "vgs_callback.h"
#include "vgs_capture.h"
#include "vgs_copy_pinned.h"
#include "vgs_enter.h"
#include "vgs_host_mirror.h"
#include "vgs_log.h"
#include "vgs_mirror.h"
#include "vgs_order.h"
#include "vgs_range.h"
#include "vgs_staging.h"
#include "vgs_stream.h"
#include "vgs_work_copy.h"
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
  while (nbytes > left) { /* to the driver adjacent mappings of cuMemMap are one range; allocations are not */
    if (range.context_id || !vgs_range_find(range.base + range.nbytes, &range) || range.context_id)
      return CUDA_ERROR_INVALID_VALUE;
    left += range.nbytes;
  }
  return CUDA_SUCCESS;
}

bool vgs_place_is_known(uint64_t address, uint64_t nbytes) {
  enum vgs_place place;
  bool known;
  return !vgs_place_of(address, nbytes, VGS_PLACE_DEVICE, &place, &known) && known;
}

bool vgs_copy_is_mapped(uint64_t address, uint64_t *device_address) {
  struct vgs_range range; /* no kernel writes to memory that is read-only, and the worker copies nothing from it */
  if (!vgs_session_has_pinned_fd() || !vgs_range_find(address, &range) || range.kind != VGS_RANGE_REGISTERED ||
      range.flags & CU_MEMHOSTREGISTER_READ_ONLY || vgs_host_mirror_has(address, 1))
    return false;
  *device_address = vgs_range_device_address(&range, address);
  return *device_address;
}

/* Copies of at most this many bytes travel in the command stream, without waiting for the device. */
enum { INLINE_NBYTES = 64 << 10 };

/* Copies to the device of more than this many bytes take the driver less time from pinned memory. */
enum { PASSED_NBYTES = 16 << 10 };

/* From the program's memory: the bytes are in the records when this returns, so the program may overwrite them. */
static CUresult to_device_in_records(const struct vgs_staged *copy) {
  bool table = vgs_diverted(VGS_MIRRORING) && copy->nbytes <= INLINE_NBYTES; /* it may be one of host addresses */
  CUresult exposed = table ? vgs_host_mirror_expose_words(copy->host, copy->nbytes) : CUDA_SUCCESS;
  if (exposed)
    return exposed;
  for (uint64_t done = 0; done < copy->nbytes;) {
    uint64_t piece = copy->nbytes - done < VGW_PIECE_NBYTES ? copy->nbytes - done : VGW_PIECE_NBYTES;
    bool last = done + piece == copy->nbytes;
    CUresult result = vgs_send_cuMemcpyHtoDAsync_v2(copy->device + done, copy->host + done, piece, copy->stream,
                                                    copy->doubtful && last);
    if (result)
      return result;
    done += piece;
  }
  return CUDA_SUCCESS;
}

static CUresult to_host_in_records(const struct vgs_staged *copy) {
  uint64_t entry = vgs_touch_entry(VGW_KIND_STREAM, copy->stream);
  CUresult result = vgs_send_cuMemcpyDtoHAsync_v2(copy->host, copy->device, copy->nbytes, copy->stream);
  if (!result)
    vgs_wait_set_done(copy->stream, entry);
  return result;
}

static CUresult copy_host_memory(const struct vgs_staged *copy) {
  bool taken = false;
  CUresult result = CUDA_SUCCESS;
  if (copy->to_host && copy->nbytes <= VGS_LANDING_NBYTES)
    result = vgs_staging_land(copy, &taken);
  else if (copy->nbytes > INLINE_NBYTES && !vgs_diverted(VGS_CAPTURING))
    result = vgs_staging_copy(copy, &taken);
  else if (!copy->to_host && copy->nbytes > PASSED_NBYTES && !vgs_diverted(VGS_CAPTURING) &&
           !vgs_diverted(VGS_MIRRORING))
    result = vgs_staging_pass(copy, &taken);
  if (taken)
    return result;
  return copy->to_host ? to_host_in_records(copy) : to_device_in_records(copy);
}

CUresult vgs_copy_wait_readable(uint32_t stream, bool known, bool sync) {
  if (!known && sync)
    return vgs_wait_stream(stream);
  return known && vgs_callback_pending() ? vgs_send_cuStreamSynchronize(stream) : CUDA_SUCCESS;
}

static CUresult copy_between(const struct vgs_copy *copy) {
  enum vgs_place dst, src;
  bool dst_known, src_known;
  uint32_t stream;
  struct vgs_stream *on;
  CUresult result = vgs_stream_id(copy->stream, &stream, &on);
  if (!result && copy->sync && vgs_diverted(VGS_CAPTURING))
    result = vgs_capture_check_unsafe();
  if (result || !copy->nbytes)
    return result;
  if ((result = vgs_place_of(copy->dst, copy->nbytes, copy->dst_otherwise, &dst, &dst_known)) ||
      (result = vgs_place_of(copy->src, copy->nbytes, copy->src_otherwise, &src, &src_known)))
    return result;
  if (vgs_diverted(VGS_MIRRORING) && !(on && vgs_capture_status(on->capture)) &&
      ((result = vgs_mirror_before_copy(copy->dst, copy->nbytes, stream)) ||
       (result = vgs_mirror_before_copy(copy->src, copy->nbytes, stream))))
    return result;
  bool dst_device = dst == VGS_PLACE_DEVICE, src_device = src == VGS_PLACE_DEVICE;
  if (on && vgs_diverted(VGS_CAPTURING) && vgs_capture_status(on->capture) &&
      (dst == VGS_PLACE_HOST || src == VGS_PLACE_HOST || (!dst_device && !src_device))) {
    struct vgs_captured_copy captured = {.dst = {dst, {copy->dst, copy->nbytes, 1, 0, 0, 0, 0}},
                                         .src = {src, {copy->src, copy->nbytes, 1, 0, 0, 0, 0}},
                                         .width = copy->nbytes,
                                         .height = 1,
                                         .depth = 1,
                                         .pageable = (dst == VGS_PLACE_HOST && !dst_known) ||
                                                     (src == VGS_PLACE_HOST && !src_known),
                                         .stream = stream,
                                         .capture = on->capture};
    return vgs_work_capture_copy(&captured);
  }
  if (!dst_device && !src_device) { /* host to host: earlier work of the stream may write the source, so wait for it */
    if ((result = vgs_wait_stream(stream)))
      return result;
    memmove((char *)(uintptr_t)copy->dst, (const char *)(uintptr_t)copy->src, copy->nbytes);
    return CUDA_SUCCESS;
  }
  /* The worker checks a device address that the client does not know (a variable that a kernel returned): wait for its
   * answer. */
  bool doubtful = (dst_device && !dst_known) || (src_device && !src_known);
  bool completes = copy->sync && vgs_range_completes(copy->dst, copy->src);
  if (dst_device && src_device) {
    result = vgs_send_cuMemcpyDtoDAsync_v2(copy->dst, copy->src, copy->nbytes, stream, doubtful);
    return completes && !result ? vgs_wait_stream(stream) : result;
  }
  uint64_t to = copy->dst, from = copy->src;
  bool in_place = (dst == VGS_PLACE_HOST && dst_known && vgs_copy_is_mapped(copy->dst, &to)) ||
                  (src == VGS_PLACE_HOST && src_known && vgs_copy_is_mapped(copy->src, &from));
  if (!in_place && (!dst_device || !src_device)) {
    bool to_host = !dst_device;
    struct vgs_staged staged = {.to_host = to_host,
                                .device = to_host ? copy->src : copy->dst,
                                .host = (char *)(uintptr_t)(to_host ? copy->dst : copy->src),
                                .nbytes = copy->nbytes,
                                .stream = stream,
                                .doubtful = doubtful};
    if (dst == VGS_PLACE_HOST)
      return vgs_mirror_after(copy_host_memory(&staged), stream);
    if (src == VGS_PLACE_HOST) {
      if ((result = vgs_copy_wait_readable(stream, src_known, copy->sync)) || (result = copy_host_memory(&staged)))
        return result;
      return (src_known && copy->sync) || completes ? vgs_wait_stream(stream) : CUDA_SUCCESS;
    }
  }
  /* One side is pinned memory that the worker reads or writes in place. */
  result = vgs_copy_pinned(!dst_device, to, from, copy->nbytes, stream, doubtful);
  if (!result && copy->sync)
    result = vgs_wait_stream(stream);
  return result;
}

CUresult vgs_copy(const struct vgs_copy *copy) {
  if (!vgs_diverted(VGS_MIRRORING))
    return copy_between(copy);
  struct vgs_copy here = *copy;
  here.dst = vgs_host_mirror_host_address(copy->dst);
  here.src = vgs_host_mirror_host_address(copy->src);
  return copy_between(&here);
}

bool vgs_copy_is_host(uint64_t address) {
  struct vgs_range range;
  return vgs_range_find(address, &range) && vgs_range_is_host(&range);
}

/* --- between contexts --- */

CUresult vgs_synchronize_context(const struct vgs_context *context) {
  uint32_t entered = vgs_thread_context_id;
  vgs_thread_context_id = context->wire_id;
  CUresult result = vgs_send_cuCtxSynchronize();
  vgs_thread_context_id = entered;
  return result;
}

CUresult vgs_cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
                          size_t ByteCount) {
  struct vgs_context *dst = vgs_context_find(dstContext), *src = vgs_context_find(srcContext);
  if (!dst || !src)
    return CUDA_ERROR_INVALID_CONTEXT;
  /* The current context's work is ordered by the stream. */
  CUresult result = src == vgs_context_entered ? CUDA_SUCCESS : vgs_synchronize_context(src);
  if (!result && dst != src && dst != vgs_context_entered)
    result = vgs_synchronize_context(dst);
  struct vgs_copy copy = {.dst = dstDevice,
                          .src = srcDevice,
                          .nbytes = ByteCount,
                          .dst_otherwise = VGS_PLACE_DEVICE,
                          .src_otherwise = VGS_PLACE_DEVICE,
                          .stream = vgs_stream_default(),
                          .sync = vgs_copy_is_host(dstDevice) || vgs_copy_is_host(srcDevice)};
  if (!result)
    result = vgs_copy(&copy);
  if (!result && (src != vgs_context_entered || dst != vgs_context_entered)) /* later work in either follows the copy */
    result = vgs_cuCtxSynchronize();
  return result;
}
