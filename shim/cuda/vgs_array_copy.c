/* Copies to or from arrays. If the worker reaches both sides, a copy is one call; rows of the program's own memory
 * travel packed, in pieces. */
#include "vgs_array_copy.h"
#include "vgs_api.h"
#include "vgs_array.h"
#include "vgs_capture.h"
#include "vgs_copy.h"
#include "vgs_enter.h"
#include "vgs_host_mirror.h"
#include "vgs_mirror.h"
#include "vgs_stream.h"
#include "vgs_work_copy.h"
#include "vgw_shape.h"
#include <stdlib.h>
#include <string.h>

struct side {
  struct vgs_array *array; /* NULL: memory */
  uint64_t x, y, z;        /* in the array; x in bytes */
  enum vgs_place place;
  bool known;
  uint64_t address, pitch, rows; /* of the first byte; bytes from row to row; rows from slice to slice */
  uint64_t extent;               /* bytes from the first to the last */
};

static CUresult array_side(struct side *side, CUarray handle, size_t x, size_t y, size_t z, const CUDA_MEMCPY3D *c) {
  side->array = vgs_array_find(handle);
  if (!side->array)
    return CUDA_ERROR_INVALID_HANDLE;
  const CUDA_ARRAY3D_DESCRIPTOR *d = &side->array->desc;
  uint64_t element = vgw_element_nbytes(d->Format, d->NumChannels), width = d->Width * element;
  uint64_t height = d->Height ? d->Height : 1, depth = d->Depth ? d->Depth : 1;
  *side = (struct side){.array = side->array, .x = x, .y = y, .z = z};
  bool fits = x <= width && c->WidthInBytes <= width - x && y <= height && c->Height <= height - y && z <= depth &&
              c->Depth <= depth - z;
  return fits && x % element == 0 && c->WidthInBytes % element == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult memory_side(struct side *side, CUmemorytype type, uint64_t address, size_t x, size_t y, size_t z,
                            size_t pitch, size_t rows, const CUDA_MEMCPY3D *c) {
  enum vgs_place otherwise = type == CU_MEMORYTYPE_DEVICE ? VGS_PLACE_DEVICE : VGS_PLACE_HOST;
  if (type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED)
    return CUDA_ERROR_INVALID_VALUE;
  side->pitch = pitch ? pitch : c->WidthInBytes;
  side->rows = rows ? rows : c->Height;
  uint64_t slice, offset, part, extent;
  if ((c->Height > 1 && (x > side->pitch || c->WidthInBytes > side->pitch - x)) ||
      __builtin_mul_overflow(side->pitch, side->rows, &slice) || __builtin_mul_overflow(slice, z, &offset) ||
      __builtin_mul_overflow(side->pitch, y, &part) || __builtin_add_overflow(offset, part, &offset) ||
      __builtin_add_overflow(offset, x, &offset) || __builtin_add_overflow(address, offset, &side->address) ||
      __builtin_mul_overflow(slice, c->Depth - 1, &extent) ||
      __builtin_mul_overflow(side->pitch, c->Height - 1, &part) || __builtin_add_overflow(extent, part, &extent) ||
      __builtin_add_overflow(extent, c->WidthInBytes, &extent))
    return CUDA_ERROR_INVALID_VALUE;
  side->address = vgs_host_mirror_host_address(side->address);
  side->extent = extent;
  return vgs_place_of(side->address, extent, otherwise, &side->place, &side->known);
}

static CUresult make_sides(const CUDA_MEMCPY3D *c, struct side *dst, struct side *src) {
  CUresult result = c->dstMemoryType == CU_MEMORYTYPE_ARRAY
                        ? array_side(dst, c->dstArray, c->dstXInBytes, c->dstY, c->dstZ, c)
                        : memory_side(dst, c->dstMemoryType,
                                      c->dstMemoryType == CU_MEMORYTYPE_HOST ? (uintptr_t)c->dstHost : c->dstDevice,
                                      c->dstXInBytes, c->dstY, c->dstZ, c->dstPitch, c->dstHeight, c);
  if (result)
    return result;
  return c->srcMemoryType == CU_MEMORYTYPE_ARRAY
             ? array_side(src, c->srcArray, c->srcXInBytes, c->srcY, c->srcZ, c)
             : memory_side(src, c->srcMemoryType,
                           c->srcMemoryType == CU_MEMORYTYPE_HOST ? (uintptr_t)c->srcHost : c->srcDevice,
                           c->srcXInBytes, c->srcY, c->srcZ, c->srcPitch, c->srcHeight, c);
}

static struct vgs_rows rows_of(const struct side *side) {
  struct vgs_copy_side at = {side->address, side->pitch, side->rows, side->x, side->y, side->z, 0};
  if (side->array)
    at.array = side->array->object.id;
  return (struct vgs_rows){.place = side->array ? VGS_PLACE_DEVICE : side->place, .at = at};
}

/* The copy as work of a graph. */
static struct vgs_captured_copy captured(const struct side *dst, const struct side *src, const CUDA_MEMCPY3D *c) {
  const struct side *memory = dst->array ? src : dst;
  return (struct vgs_captured_copy){.dst = rows_of(dst),
                                    .src = rows_of(src),
                                    .width = c->WidthInBytes,
                                    .height = c->Height,
                                    .depth = c->Depth,
                                    .pageable = !memory->array && memory->place == VGS_PLACE_HOST && !memory->known};
}

CUresult vgs_array_copy_resolve(const CUDA_MEMCPY3D *c, bool *in_place, struct vgs_captured_copy *copy) {
  struct side dst = {0}, src = {0};
  CUresult result = make_sides(c, &dst, &src);
  if (result)
    return result;
  *copy = captured(&dst, &src, c);
  *in_place = copy->dst.place != VGS_PLACE_HOST && copy->src.place != VGS_PLACE_HOST;
  return CUDA_SUCCESS;
}

static CUresult in_place(const struct side *dst, const struct side *src, const CUDA_MEMCPY3D *c, uint32_t stream,
                         bool sync) {
  bool wait =
      sync && ((!dst->array && dst->place == VGS_PLACE_SHARED) || (!src->array && src->place == VGS_PLACE_SHARED));
  struct vgs_copy_in_place copy = {rows_of(dst).at, rows_of(src).at, c->WidthInBytes, c->Height, c->Depth};
  CUresult result = vgs_send_vgpuArrayCopy(VGS_COPY_SENT(copy), stream, false);
  return result || !wait ? result : vgs_wait_stream(stream);
}

/* Copies in pieces of whole rows, or of parts of a row that is longer than a piece. */
static CUresult travel(const struct side *array, const struct side *memory, const CUDA_MEMCPY3D *c, uint32_t stream,
                       bool write) {
  uint64_t width = c->WidthInBytes < VGW_PIECE_NBYTES ? c->WidthInBytes : VGW_PIECE_NBYTES & ~UINT64_C(15);
  uint64_t rows = VGW_PIECE_NBYTES / width;
  char *packed = malloc(VGW_PIECE_NBYTES);
  CUresult result = packed ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  for (uint64_t z = 0; z < c->Depth && !result; z++)
    for (uint64_t y = 0; y < c->Height && !result; y += rows)
      for (uint64_t x = 0; x < c->WidthInBytes && !result; x += width) {
        uint64_t part = width < c->WidthInBytes - x ? width : c->WidthInBytes - x;
        uint64_t count = rows < c->Height - y ? rows : c->Height - y;
        char *at = (char *)(uintptr_t)memory->address + (z * memory->rows + y) * memory->pitch + x;
        for (uint64_t i = 0; i < count && write; i++)
          memcpy(packed + i * part, at + i * memory->pitch, part);
        result = write ? vgs_send_vgpuArrayWrite(part * count, array->x + x, array->y + y, array->z + z, part, count, 1,
                                                 array->array->object.id, stream, packed, false)
                       : vgs_send_vgpuArrayRead(part * count, array->x + x, array->y + y, array->z + z, part, count, 1,
                                                array->array->object.id, stream, packed);
        for (uint64_t i = 0; i < count && !write && !result; i++)
          memcpy(at + i * memory->pitch, packed + i * part, part);
      }
  free(packed);
  return result;
}

CUresult vgs_array_copy(const CUDA_MEMCPY3D *c, CUstream handle, bool sync) {
  struct side dst = {0}, src = {0};
  uint32_t stream;
  struct vgs_stream *on;
  CUresult result = vgs_stream_id(handle, &stream, &on);
  if (!result && sync)
    result = vgs_capture_check_unsafe();
  if (result || !c->WidthInBytes || !c->Height || !c->Depth)
    return result;
  result = make_sides(c, &dst, &src);
  if (result)
    return result;
  const struct side *memory = dst.array ? &src : &dst;
  if (memory->array || memory->place != VGS_PLACE_HOST)
    return in_place(&dst, &src, c, stream, sync);
  if (on && vgs_capture_status(on->capture)) {
    struct vgs_captured_copy copy = captured(&dst, &src, c);
    copy.stream = stream;
    copy.capture = on->capture;
    return vgs_work_capture_copy(&copy);
  }
  if (vgs_diverted(VGS_MIRRORING) && (result = vgs_mirror_before_copy(memory->address, memory->extent, stream)))
    return result;
  uint64_t unused;
  if (memory == &src && src.known && vgs_copy_is_mapped(src.address, &unused) && (result = vgs_wait_stream(stream)))
    return result;
  if (memory == &src)
    result = vgs_copy_wait_readable(stream, src.known, sync);
  return result ? result : travel(dst.array ? &dst : &src, memory, c, stream, memory == &src);
}
