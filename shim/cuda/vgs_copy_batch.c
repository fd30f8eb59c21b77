/* Several copies, prefetches or discards in one call: each is made as if by a separate call. */
#include "vgs_api.h"
#include "vgs_array.h"
#include "vgs_copy_box.h"
#include "vgs_managed.h"
#include "vgs_range.h"
#include "vgs_stream.h"
#include "vgw_shape.h"
#include <stdint.h>

enum { ORDER_STREAM = 1, ORDER_DURING_CALL = 2, ORDER_ANY = 3 }; /* CUmemcpySrcAccessOrder */

/* Attributes apply to the copies from their index up to the index of the next attributes. */
static bool are_attributes(const CUmemcpyAttributes *attrs, const size_t *indexes, size_t number, size_t count) {
  if (!number || number > count || !attrs || !indexes || indexes[0])
    return false;
  for (size_t i = 0; i < number; i++)
    if (attrs[i].srcAccessOrder < ORDER_STREAM || attrs[i].srcAccessOrder > ORDER_ANY ||
        (i && (indexes[i] <= indexes[i - 1] || indexes[i] >= count)))
      return false;
  return true;
}

/* *failed: index of the copy that could not be made; SIZE_MAX: no single copy is at fault. */
static CUresult copy(const CUdeviceptr *dsts, const CUdeviceptr *srcs, const size_t *sizes, size_t count,
                     const CUmemcpyAttributes *attrs, const size_t *indexes, size_t number, size_t *failed,
                     CUstream stream) {
  uint32_t id;
  bool read_now = false;
  *failed = SIZE_MAX;
  CUresult result = vgs_stream_id(stream, &id, NULL);
  if (result)
    return result;
  /* The driver's manual excludes the default stream. */
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

static bool is_array(const CUmemcpy3DOperand *side) { return side->type == CU_MEMCPY_OPERAND_TYPE_ARRAY; }

/* Bytes of an element of the array; 0: the operand is not an array. */
static size_t element_nbytes(const CUmemcpy3DOperand *side) {
  const struct vgs_array *array = vgs_array_find(side->op.array.array);
  return array ? vgw_element_nbytes(array->desc.Format, array->desc.NumChannels) : 0;
}

/* Translate an operation to the parameters of one copy. False: it is not valid. */
static bool describe_box(const CUDA_MEMCPY3D_BATCH_OP *op, CUDA_MEMCPY3D *c) {
  const CUmemcpy3DOperand *src = &op->src, *dst = &op->dst;
  if ((!is_array(src) && src->type != CU_MEMCPY_OPERAND_TYPE_POINTER) ||
      (!is_array(dst) && dst->type != CU_MEMCPY_OPERAND_TYPE_POINTER) || !op->extent.width || !op->extent.height ||
      !op->extent.depth || op->srcAccessOrder < ORDER_STREAM || op->srcAccessOrder > ORDER_ANY)
    return false;
  size_t element = is_array(dst) ? element_nbytes(dst) : is_array(src) ? element_nbytes(src) : 1, width;
  if (!element || __builtin_mul_overflow(op->extent.width, element, &width))
    return false;
  *c = (CUDA_MEMCPY3D){.WidthInBytes = width, .Height = op->extent.height, .Depth = op->extent.depth};
  if (is_array(src)) {
    c->srcMemoryType = CU_MEMORYTYPE_ARRAY;
    c->srcArray = src->op.array.array;
    c->srcXInBytes = src->op.array.offset.x * element;
    c->srcY = src->op.array.offset.y;
    c->srcZ = src->op.array.offset.z;
  } else {
    c->srcMemoryType = CU_MEMORYTYPE_UNIFIED;
    c->srcDevice = src->op.ptr.ptr;
    c->srcPitch = src->op.ptr.rowLength * element;
    c->srcHeight = src->op.ptr.layerHeight;
  }
  if (is_array(dst)) {
    c->dstMemoryType = CU_MEMORYTYPE_ARRAY;
    c->dstArray = dst->op.array.array;
    c->dstXInBytes = dst->op.array.offset.x * element;
    c->dstY = dst->op.array.offset.y;
    c->dstZ = dst->op.array.offset.z;
  } else {
    c->dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    c->dstDevice = dst->op.ptr.ptr;
    c->dstPitch = dst->op.ptr.rowLength * element;
    c->dstHeight = dst->op.ptr.layerHeight;
  }
  return true;
}

static CUresult copy_boxes(size_t count, const CUDA_MEMCPY3D_BATCH_OP *ops, unsigned long long flags, size_t *failed,
                           CUstream stream) {
  uint32_t id;
  bool read_now = false;
  CUDA_MEMCPY3D box;
  *failed = SIZE_MAX;
  CUresult result = vgs_stream_id(stream, &id, NULL);
  if (result)
    return result;
  if (!id || !count || !ops || flags)
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; i++) {
    result = describe_box(&ops[i], &box) ? vgs_copy_3d(&box, stream, false) : CUDA_ERROR_INVALID_VALUE;
    if (result) {
      *failed = i;
      return result;
    }
    read_now |= ops[i].srcAccessOrder == ORDER_DURING_CALL;
  }
  return read_now ? vgs_cuStreamSynchronize(stream) : CUDA_SUCCESS;
}

CUresult vgs_cuMemcpy3DBatchAsync(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx,
                                  unsigned long long flags, CUstream hStream) {
  size_t failed;
  CUresult result = copy_boxes(numOps, opList, flags, &failed, hStream);
  if (result && failIdx)
    *failIdx = failed;
  return result;
}

CUresult vgs_cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, unsigned long long flags,
                                     CUstream hStream) {
  size_t failed;
  return copy_boxes(numOps, opList, flags, &failed, hStream);
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

/* Discarded memory is undefined afterwards, so it may as well stay unchanged. */
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
