/* Several copies, prefetches or discards by one call: each is made as if by a call of its own. */
#include "vgs_api.h"
#include "vgs_managed.h"
#include "vgs_range.h"
#include "vgs_stream.h"
#include <stdint.h>

enum { ORDER_STREAM = 1, ORDER_DURING_CALL = 2, ORDER_ANY = 3 }; /* CUmemcpySrcAccessOrder */

/* Attributes apply from the copy of their index on, up to that of the next. */
static bool are_attributes(const CUmemcpyAttributes *attrs, const size_t *indexes, size_t number, size_t count) {
  if (!number || number > count || !attrs || !indexes || indexes[0])
    return false;
  for (size_t i = 0; i < number; i++)
    if (attrs[i].srcAccessOrder < ORDER_STREAM || attrs[i].srcAccessOrder > ORDER_ANY ||
        (i && (indexes[i] <= indexes[i - 1] || indexes[i] >= count)))
      return false;
  return true;
}

/* *failed: the copy that could not be made; SIZE_MAX: it is none's fault. */
static CUresult copy(const CUdeviceptr *dsts, const CUdeviceptr *srcs, const size_t *sizes, size_t count,
                     const CUmemcpyAttributes *attrs, const size_t *indexes, size_t number, size_t *failed,
                     CUstream stream) {
  uint32_t id;
  bool read_now = false;
  *failed = SIZE_MAX;
  CUresult result = vgs_stream_id(stream, &id, NULL);
  if (result)
    return result;
  /* Not the default stream, says the driver's manual. */
  if (!id || !dsts || !srcs || !sizes || !count || !are_attributes(attrs, indexes, number, count))
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < number; i++)
    read_now |= attrs[i].srcAccessOrder == ORDER_DURING_CALL;
  for (size_t i = 0; i < count; i++) {
    result = vgs_cuMemcpyAsync(dsts[i], srcs[i], sizes[i], stream);
    if (result) {
      *failed = i;
      return result;
    }
  }
  return read_now ? vgs_cuStreamSynchronize(stream) : CUDA_SUCCESS;
}

CUresult vgs_cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                                CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, size_t *failIdx,
                                CUstream hStream) {
  size_t failed;
  CUresult result = copy(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, &failed, hStream);
  if (result && failIdx)
    *failIdx = failed;
  return result;
}

CUresult vgs_cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                                   CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, CUstream hStream) {
  size_t failed;
  return copy(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, &failed, hStream);
}

static bool are_locations(const CUmemLocation *locations, const size_t *indexes, size_t number, size_t count) {
  if (!number || number > count || !locations || !indexes || indexes[0])
    return false;
  for (size_t i = 1; i < number; i++)
    if (indexes[i] <= indexes[i - 1] || indexes[i] >= count)
      return false;
  return true;
}

CUresult vgs_cuMemPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count, CUmemLocation *prefetchLocs,
                                     size_t *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags,
                                     CUstream hStream) {
  if (!dptrs || !sizes || !count || flags || !are_locations(prefetchLocs, prefetchLocIdxs, numPrefetchLocs, count))
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0, location = 0; i < count && !result; i++) {
    if (location + 1 < numPrefetchLocs && prefetchLocIdxs[location + 1] == i)
      location++;
    result = vgs_cuMemPrefetchAsync_v2(dptrs[i], sizes[i], prefetchLocs[location], 0, hStream);
  }
  return result;
}

/* What is discarded may be anything afterwards, so also what it was. */
CUresult vgs_cuMemDiscardBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count, unsigned long long flags,
                                    CUstream hStream) {
  uint32_t id;
  CUresult result = vgs_stream_id(hStream, &id, NULL);
  if (result)
    return result;
  if (!dptrs || !sizes || !count || flags)
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; i++) {
    struct vgs_range range;
    if (!sizes[i] || !vgs_range_find(dptrs[i], &range) || range.kind != VGS_RANGE_MANAGED ||
        sizes[i] > range.nbytes - (dptrs[i] - range.base))
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult vgs_cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count,
                                               CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs,
                                               size_t numPrefetchLocs, unsigned long long flags, CUstream hStream) {
  CUresult result = vgs_cuMemDiscardBatchAsync(dptrs, sizes, count, flags, hStream);
  return result ? result
                : vgs_cuMemPrefetchBatchAsync(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs,
                                              flags, hStream);
}
