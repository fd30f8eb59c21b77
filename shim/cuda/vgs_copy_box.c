/* Rectangles and boxes. A box is a row of rectangles; a rectangle that touches the program's memory travels packed, in
 * pieces. */
#include "vgs_copy_box.h"
#include "vgs_api.h"
#include "vgs_array.h"
#include "vgs_array_copy.h"
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
  enum vgs_place place;
  bool known;
  uint64_t address;      /* of the first byte to copy */
  uint64_t extent;       /* bytes from there to the last one */
  uint64_t pitch, slice; /* bytes from row to row, and from slice to slice */
};

struct box {
  struct side dst, src;
  uint64_t width, height, depth; /* bytes, rows, slices */
  uint32_t stream;
  bool sync;
  bool doubtful; /* a device address that the client does not know: the worker checks it, so the copy waits for its
                    answer */
};

/* a + b * c, or false if it does not fit. */
static bool add_product(uint64_t *a, uint64_t b, uint64_t c) {
  uint64_t product;
  return !__builtin_mul_overflow(b, c, &product) && !__builtin_add_overflow(*a, product, a);
}

/* Work out one side: where it begins, and that all of it lies in one allocation as far as the client knows. */
static CUresult make_side(struct side *side, CUmemorytype type, const void *host, CUdeviceptr device, uint64_t x,
                          uint64_t y, uint64_t z, uint64_t pitch, uint64_t rows, struct box *box) {
  enum vgs_place otherwise = type == CU_MEMORYTYPE_DEVICE ? VGS_PLACE_DEVICE : VGS_PLACE_HOST;
  if (type == CU_MEMORYTYPE_ARRAY)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED)
    return CUDA_ERROR_INVALID_VALUE;
  side->address = vgs_host_mirror_host_address(type == CU_MEMORYTYPE_HOST ? (uintptr_t)host : device);
  side->pitch = pitch ? pitch : box->width;
  if (x > UINT64_MAX - box->width || (box->height > 1 && x + box->width > side->pitch) || (!pitch && x))
    return CUDA_ERROR_INVALID_VALUE;
  side->slice = 0;
  uint64_t extent = box->width;
  if (!add_product(&side->slice, side->pitch, rows ? rows : box->height) || !add_product(&side->address, 1, x) ||
      !add_product(&side->address, side->pitch, y) || !add_product(&side->address, side->slice, z) ||
      !add_product(&extent, side->pitch, box->height - 1) || !add_product(&extent, side->slice, box->depth - 1))
    return CUDA_ERROR_INVALID_VALUE;
  side->extent = extent;
  CUresult result = vgs_place_of(side->address, extent, otherwise, &side->place, &side->known);
  box->doubtful |= !side->known && side->place == VGS_PLACE_DEVICE;
  return result;
}

/* A part of a box's layer that travels in one record: `rows` rows of `width` bytes from (x, y). A row that is longer
 * than a record may be is split. */
struct piece {
  uint64_t x, y, width, rows;
};

/* The next piece, from left to right and down; a zeroed one comes before the first. False: there is none. */
static bool next_piece(const struct box *box, struct piece *piece) {
  uint64_t rows = box->width < VGW_PIECE_NBYTES ? VGW_PIECE_NBYTES / box->width : 1;
  piece->x += piece->width;
  if (piece->x == box->width) {
    piece->x = 0;
    piece->y += piece->rows;
  }
  uint64_t right = box->width - piece->x, below = box->height - piece->y;
  piece->width = right < VGW_PIECE_NBYTES ? right : VGW_PIECE_NBYTES;
  piece->rows = rows < below ? rows : below;
  return piece->rows;
}

static CUresult to_device(const struct box *box, uint64_t dst, const char *src, char *packed) {
  for (struct piece p = {0}; next_piece(box, &p);) {
    for (uint64_t i = 0; i < p.rows; i++)
      memcpy(packed + i * p.width, src + (p.y + i) * box->src.pitch + p.x, p.width);
    CUresult result = vgs_send_vgpuMemcpy2DToDevice(dst + p.y * box->dst.pitch + p.x, box->dst.pitch, p.width, p.rows,
                                                    p.width * p.rows, box->stream, packed, box->doubtful);
    if (result)
      return result;
  }
  return CUDA_SUCCESS;
}

static CUresult to_host(const struct box *box, char *dst, uint64_t src, char *packed) {
  for (struct piece p = {0}; next_piece(box, &p);) {
    CUresult result = vgs_send_vgpuMemcpy2DToHost(packed, src + p.y * box->src.pitch + p.x, box->src.pitch, p.width,
                                                  p.rows, p.width * p.rows, box->stream);
    if (result)
      return result;
    for (uint64_t i = 0; i < p.rows; i++)
      memcpy(dst + (p.y + i) * box->dst.pitch + p.x, packed + i * p.width, p.width);
  }
  return CUDA_SUCCESS;
}

static CUresult copy_slice(const struct box *box, uint64_t z, char *packed) {
  uint64_t dst = box->dst.address + z * box->dst.slice, src = box->src.address + z * box->src.slice;
  bool dst_host = box->dst.place == VGS_PLACE_HOST, src_host = box->src.place == VGS_PLACE_HOST;
  bool dst_device = box->dst.place == VGS_PLACE_DEVICE, src_device = box->src.place == VGS_PLACE_DEVICE;
  if (!dst_host && !src_host && (dst_device || src_device))
    return vgs_send_vgpuMemcpy2DOnDevice(dst, box->dst.pitch, src, box->src.pitch, box->width, box->height, box->stream,
                                         box->doubtful);
  if (!dst_device && !src_device) { /* the stream has been waited for */
    for (uint64_t y = 0; y < box->height; y++)
      memmove((char *)(uintptr_t)dst + y * box->dst.pitch, (const char *)(uintptr_t)src + y * box->src.pitch,
              box->width);
    return CUDA_SUCCESS;
  }
  return src_host ? to_device(box, dst, (const char *)(uintptr_t)src, packed)
                  : to_host(box, (char *)(uintptr_t)dst, src, packed);
}

static bool is_pinned(const struct side *side) {
  return side->place == VGS_PLACE_SHARED || (side->place == VGS_PLACE_HOST && side->known);
}

static CUresult copy_box(const struct box *box) {
  CUresult result = CUDA_SUCCESS;
  bool dst_device = box->dst.place == VGS_PLACE_DEVICE, src_device = box->src.place == VGS_PLACE_DEVICE;
  if (vgs_diverted(VGS_MIRRORING) &&
      ((result = vgs_mirror_before_copy(box->dst.address, box->dst.extent, box->stream)) ||
       (result = vgs_mirror_before_copy(box->src.address, box->src.extent, box->stream))))
    return result;
  if (!dst_device && !src_device && (result = vgs_wait_stream(box->stream)))
    return result;
  uint64_t unused;
  if (box->src.place == VGS_PLACE_HOST && box->src.known && vgs_copy_is_mapped(box->src.address, &unused) &&
      (result = vgs_wait_stream(box->stream)))
    return result;
  if (box->src.place == VGS_PLACE_HOST && (result = vgs_copy_wait_readable(box->stream, box->src.known, box->sync)))
    return result;
  char *packed = malloc(VGW_PIECE_NBYTES);
  if (!packed)
    return CUDA_ERROR_OUT_OF_MEMORY;
  for (uint64_t z = 0; z < box->depth && !result; z++)
    result = copy_slice(box, z, packed);
  free(packed);
  bool pinned = is_pinned(&box->dst) || is_pinned(&box->src);
  return result || !box->sync || !pinned ? result : vgs_wait_stream(box->stream);
}

/* Whether the worker reaches both sides, one of which is the device's. */
static bool is_in_place(const struct box *box) {
  return box->dst.place != VGS_PLACE_HOST && box->src.place != VGS_PLACE_HOST &&
         (box->dst.place == VGS_PLACE_DEVICE || box->src.place == VGS_PLACE_DEVICE);
}

static struct vgs_rows rows_of(const struct side *side) {
  return (struct vgs_rows){.place = side->place,
                           .at = {.address = side->address, .pitch = side->pitch, .rows = side->slice / side->pitch}};
}

static bool is_pageable(const struct side *side) { return side->place == VGS_PLACE_HOST && !side->known; }

static struct vgs_captured_copy captured(const struct box *box, uint64_t capture) {
  return (struct vgs_captured_copy){.dst = rows_of(&box->dst),
                                    .src = rows_of(&box->src),
                                    .width = box->width,
                                    .height = box->height,
                                    .depth = box->depth,
                                    .pageable = is_pageable(&box->dst) || is_pageable(&box->src),
                                    .stream = box->stream,
                                    .capture = capture};
}

static CUresult make_sides(const CUDA_MEMCPY3D *c, struct box *box) {
  CUresult result = make_side(&box->dst, c->dstMemoryType, c->dstHost, c->dstDevice, c->dstXInBytes, c->dstY, c->dstZ,
                              c->dstPitch, c->dstHeight, box);
  return result ? result
                : make_side(&box->src, c->srcMemoryType, c->srcHost, c->srcDevice, c->srcXInBytes, c->srcY, c->srcZ,
                            c->srcPitch, c->srcHeight, box);
}

CUresult vgs_copy_3d(const CUDA_MEMCPY3D *c, CUstream stream, bool sync) {
  if (!c || c->reserved0 || c->reserved1 || c->srcLOD || c->dstLOD)
    return CUDA_ERROR_INVALID_VALUE;
  if (c->srcMemoryType == CU_MEMORYTYPE_ARRAY || c->dstMemoryType == CU_MEMORYTYPE_ARRAY)
    return vgs_array_copy(c, stream, sync);
  struct box box = {.width = c->WidthInBytes, .height = c->Height, .depth = c->Depth, .sync = sync};
  struct vgs_stream *on;
  CUresult result = vgs_stream_id(stream, &box.stream, &on);
  if (!result && sync)
    result = vgs_capture_check_unsafe();
  if (result || !box.width || !box.height || !box.depth)
    return result;
  if ((result = make_sides(c, &box)))
    return result;
  if (on && vgs_capture_status(on->capture) && !is_in_place(&box)) {
    struct vgs_captured_copy copy = captured(&box, on->capture);
    return vgs_work_capture_copy(&copy);
  }
  return copy_box(&box);
}

CUresult vgs_copy_resolve(const CUDA_MEMCPY3D *c, bool *in_place, struct vgs_copy_in_place *copy,
                          struct vgs_captured_copy *other) {
  if (!c || c->reserved0 || c->reserved1 || c->srcLOD || c->dstLOD || !c->WidthInBytes || !c->Height || !c->Depth)
    return CUDA_ERROR_INVALID_VALUE;
  struct box box = {.width = c->WidthInBytes, .height = c->Height, .depth = c->Depth};
  if (c->srcMemoryType == CU_MEMORYTYPE_ARRAY || c->dstMemoryType == CU_MEMORYTYPE_ARRAY) {
    CUresult result = vgs_array_copy_resolve(c, in_place, other);
    if (result)
      return result;
  } else {
    CUresult result = make_sides(c, &box);
    if (result)
      return result;
    *in_place = is_in_place(&box);
    *other = captured(&box, 0);
  }
  *copy = (struct vgs_copy_in_place){other->dst.at, other->src.at, box.width, box.height, box.depth};
  return CUDA_SUCCESS;
}

CUresult vgs_copy_2d(const CUDA_MEMCPY2D *c, CUstream stream, bool sync) {
  if (!c)
    return CUDA_ERROR_INVALID_VALUE;
  CUDA_MEMCPY3D box = vgw_copy_of_2d(c);
  return vgs_copy_3d(&box, stream, sync);
}

/* One address space holds all devices' memory: the addresses determine the devices, the contexts are only checked. */
CUresult vgs_copy_3d_peer(const CUDA_MEMCPY3D_PEER *c, CUstream stream, bool sync) {
  if (!c)
    return CUDA_ERROR_INVALID_VALUE;
  if ((c->srcContext && !vgs_context_find(c->srcContext)) || (c->dstContext && !vgs_context_find(c->dstContext)))
    return CUDA_ERROR_INVALID_CONTEXT;
  CUDA_MEMCPY3D box = {.srcXInBytes = c->srcXInBytes,
                       .srcY = c->srcY,
                       .srcZ = c->srcZ,
                       .srcLOD = c->srcLOD,
                       .srcMemoryType = c->srcMemoryType,
                       .srcHost = c->srcHost,
                       .srcDevice = c->srcDevice,
                       .srcArray = c->srcArray,
                       .srcPitch = c->srcPitch,
                       .srcHeight = c->srcHeight,
                       .dstXInBytes = c->dstXInBytes,
                       .dstY = c->dstY,
                       .dstZ = c->dstZ,
                       .dstLOD = c->dstLOD,
                       .dstMemoryType = c->dstMemoryType,
                       .dstHost = c->dstHost,
                       .dstDevice = c->dstDevice,
                       .dstArray = c->dstArray,
                       .dstPitch = c->dstPitch,
                       .dstHeight = c->dstHeight,
                       .WidthInBytes = c->WidthInBytes,
                       .Height = c->Height,
                       .Depth = c->Depth};
  return vgs_copy_3d(&box, stream, sync);
}
