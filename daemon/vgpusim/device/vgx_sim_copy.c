/* Copies: one shape, a box of rows and planes, for every function. Ranges are checked when the call is made; the copy
 * itself runs guarded, because a client may take its pinned memory away (SIGBUS) before the stream comes to it.
 *
 * Locking: none of its own; the queue orders the work. */
#include "vgx_sim_copy.h"

#include <stdlib.h>
#include <string.h>

#include "vgw_shape.h"
#include "vgx_sim_array.h"
#include "vgx_sim_defined.h"
#include "vgx_sim_fault.h"
#include "vgx_sim_marker.h"
#include "vgx_sim_memory.h"
#include "vgx_sim_queue.h"
#include "vgx_sim_runtime.h"

#define STAGED_NBYTES_MAX (256ull << 20) /* with more bytes in queued copies, calls wait for their turn */
#define INLINE_NBYTES_MAX (256u << 10)   /* an asynchronous copy up to this size is not worth waking a thread */

struct copy {
  struct vgx_sim_op op;
  struct vgx_sim_box box;
  uint64_t staged_nbytes;
  uint8_t staged[]; /* a packed copy of the source, if it may change before the copy runs */
};

static uint64_t staged_nbytes; /* atomic: of all queued copies */

static void copy_box(void *argument) {
  const struct vgx_sim_box *b = argument;
  for (uint64_t z = 0; z < b->depth; z++)
    for (uint64_t y = 0; y < b->height; y++) {
      uint8_t *row = b->dst + z * b->dst_slice + y * b->dst_pitch;
      memmove(row, b->src + z * b->src_slice + y * b->src_pitch, b->width);
      vgx_sim_watch_defined((uint64_t)row, b->width);
    }
}

static CUresult copy_guarded(struct vgx_sim_box *box) {
  struct vgx_sim_fault fault;
  CUresult result = vgx_sim_guarded(NULL, copy_box, box, &fault);
  if (result != CUDA_SUCCESS) {
    vgx_sim_reason(CUDA_ERROR_ILLEGAL_ADDRESS, false, "copy of %llu bytes to %p from %p faulted at 0x%llx",
                   (unsigned long long)box->width, (void *)box->dst, (const void *)box->src,
                   (unsigned long long)fault.address);
    result = CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  return result;
}

static CUresult run_copy(struct vgx_sim_op *op) { return copy_guarded(&((struct copy *)op)->box); }

static void describe_copy(const struct vgx_sim_op *op, struct vgw_activity *activity, const char **name) {
  const struct vgx_sim_box *box = &((const struct copy *)op)->box;
  (void)name;
  activity->kind = VGW_ACTIVITY_COPY;
  activity->nbytes = box->width * box->height * box->depth;
  activity->source = vgx_sim_device_of((uint64_t)box->src) ? VGW_ACTIVITY_DEVICE : VGW_ACTIVITY_HOST;
  activity->destination = vgx_sim_device_of((uint64_t)box->dst) ? VGW_ACTIVITY_DEVICE : VGW_ACTIVITY_HOST;
}

static void destroy_copy(struct vgx_sim_op *op) {
  __atomic_sub_fetch(&staged_nbytes, ((struct copy *)op)->staged_nbytes, __ATOMIC_RELAXED);
  free(op);
}

static CUresult wait_box(CUstream stream, const struct vgx_sim_box *box) {
  struct copy direct = {.op.run = run_copy, .op.describe = describe_copy, .box = *box};
  return vgx_sim_submit(stream, &direct.op, VGX_SIM_WAIT);
}

/* The size of a box from its first byte to its last; false: it does not fit 64 bits. */
static bool extent(uint64_t pitch, uint64_t slice, const struct vgx_sim_box *b, uint64_t *nbytes) {
  uint64_t rows, planes;
  return !__builtin_mul_overflow(b->height - 1, pitch, &rows) &&
         !__builtin_mul_overflow(b->depth - 1, slice, &planes) && !__builtin_add_overflow(rows, planes, nbytes) &&
         !__builtin_add_overflow(*nbytes, b->width, nbytes);
}

CUresult vgx_sim_submit_box(CUstream stream, const struct vgx_sim_box *box, bool synchronous) {
  uint64_t src_extent, dst_extent, total;
  if (box->width == 0 || box->height == 0 || box->depth == 0)
    return CUDA_SUCCESS;
  if (!extent(box->src_pitch, box->src_slice, box, &src_extent) ||
      !extent(box->dst_pitch, box->dst_slice, box, &dst_extent) ||
      __builtin_mul_overflow(box->width, box->height, &total) || __builtin_mul_overflow(total, box->depth, &total))
    return CUDA_ERROR_INVALID_VALUE;
  /* When a synchronous call returns, the program may change its source and read its host destination. Device memory is
   * accessed only in stream order, so a call that only writes device memory need not wait once it has copied its
   * source. */
  bool to_host = !vgx_sim_device_of((uint64_t)box->dst);
  bool stage =
      synchronous ? !vgx_sim_device_of((uint64_t)box->src) : !vgx_sim_is_device_range((uint64_t)box->src, src_extent);
  if (synchronous ? to_host : !vgx_sim_is_device_range((uint64_t)box->dst, dst_extent))
    return wait_box(stream, box);
  struct copy direct = {.op.run = run_copy, .op.describe = describe_copy, .box = *box};
  if (stage || total <= INLINE_NBYTES_MAX) {
    CUresult result = vgx_sim_submit(stream, &direct.op, VGX_SIM_TRY);
    if (result != CUDA_ERROR_NOT_READY)
      return result;
  }
  uint64_t staged = stage ? total : 0;
  if (staged > STAGED_NBYTES_MAX || __atomic_add_fetch(&staged_nbytes, staged, __ATOMIC_RELAXED) > STAGED_NBYTES_MAX) {
    if (staged <= STAGED_NBYTES_MAX)
      __atomic_sub_fetch(&staged_nbytes, staged, __ATOMIC_RELAXED);
    return wait_box(stream, box);
  }
  struct copy *queued = malloc(sizeof *queued + staged);
  if (!queued) {
    __atomic_sub_fetch(&staged_nbytes, staged, __ATOMIC_RELAXED);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  queued->op = (struct vgx_sim_op){
      .run = run_copy, .destroy = destroy_copy, .kind = VGX_SIM_OP_MEMCPY, .describe = describe_copy};
  queued->box = *box;
  queued->staged_nbytes = staged;
  if (stage) {
    struct vgx_sim_box gather = *box;
    gather.dst = queued->staged;
    gather.dst_pitch = box->width;
    gather.dst_slice = box->width * box->height;
    if (copy_guarded(&gather) != CUDA_SUCCESS) { /* the caller's pointer is at fault, not the device: not sticky */
      destroy_copy(&queued->op);
      return CUDA_ERROR_INVALID_VALUE;
    }
    queued->box.src = queued->staged;
    queued->box.src_pitch = gather.dst_pitch;
    queued->box.src_slice = gather.dst_slice;
  }
  if (synchronous) {
    queued->op.holds_back = true;
    queued->op.record = vgx_sim_marker_create(false);
    if (!queued->op.record) {
      destroy_copy(&queued->op);
      return wait_box(stream, box);
    }
  }
  return vgx_sim_submit(stream, &queued->op, VGX_SIM_QUEUE);
}

enum side { HOST, DEVICE, EITHER };

/* Whether `nbytes` at `address` can be the kind of memory that the function's name says. */
static bool is_valid(uint64_t address, uint64_t nbytes, enum side side) {
  if (address == 0)
    return false;
  if (side == DEVICE || vgx_sim_device_of(address))
    return vgx_sim_is_device_range(address, nbytes);
  return true;
}

static CUresult copy_flat(uint64_t dst, enum side dst_side, uint64_t src, enum side src_side, size_t nbytes,
                          CUstream handle, bool wait) {
  CUstream stream;
  CUresult result = vgx_sim_enter_stream(handle, NULL, &stream);
  if (result != CUDA_SUCCESS || nbytes == 0)
    return result;
  if (!is_valid(dst, nbytes, dst_side) || !is_valid(src, nbytes, src_side))
    return CUDA_ERROR_INVALID_VALUE;
  struct vgx_sim_box box = {
      .dst = (uint8_t *)dst, .src = (const uint8_t *)src, .width = nbytes, .height = 1, .depth = 1};
  return vgx_sim_submit_box(stream, &box, wait);
}

CUresult vgx_sim_cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
  return copy_flat(dst, EITHER, src, EITHER, ByteCount, NULL, true);
}

CUresult vgx_sim_cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount) {
  return copy_flat(dstDevice, DEVICE, (uint64_t)srcHost, HOST, ByteCount, NULL, true);
}

CUresult vgx_sim_cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  return copy_flat((uint64_t)dstHost, HOST, srcDevice, DEVICE, ByteCount, NULL, true);
}

CUresult vgx_sim_cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
  return copy_flat(dstDevice, DEVICE, srcDevice, DEVICE, ByteCount, NULL, true);
}

CUresult vgx_sim_cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream) {
  return copy_flat(dstDevice, DEVICE, (uint64_t)srcHost, HOST, ByteCount, hStream, false);
}

CUresult vgx_sim_cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream) {
  return copy_flat((uint64_t)dstHost, HOST, srcDevice, DEVICE, ByteCount, hStream, false);
}

CUresult vgx_sim_cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                                      CUstream hStream) {
  return copy_flat(dstDevice, DEVICE, srcDevice, DEVICE, ByteCount, hStream, false);
}

/* One side of a 2-D or 3-D copy: its first byte and strides; INVALID_VALUE when it does not hold the box. */
static CUresult resolve_side(const struct vgx_sim_device *device, CUmemorytype type, const void *host,
                             CUdeviceptr address, uint64_t x, uint64_t y, uint64_t z, uint64_t pitch, uint64_t rows,
                             const struct vgx_sim_box *b, uint64_t *first, uint64_t *pitch_out, uint64_t *slice_out) {
  uint64_t need, slice, offset, row_offset, plane_offset, nbytes;
  if (type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED)
    return CUDA_ERROR_INVALID_VALUE;
  if (__builtin_add_overflow(x, b->width, &need))
    return CUDA_ERROR_INVALID_VALUE;
  if (pitch == 0 && b->height == 1 && b->depth == 1 && y == 0 && z == 0)
    pitch = need; /* a single row has no pitch */
  if (rows == 0 && b->depth == 1 && z == 0)
    rows = b->height;
  if (pitch < need || pitch > (uint64_t)vgx_sim_attribute(device, VGX_SIM_MAX_PITCH, INT32_MAX) ||
      (b->depth > 1 && rows < b->height) || __builtin_mul_overflow(pitch, rows, &slice) ||
      __builtin_mul_overflow(y, pitch, &row_offset) || __builtin_mul_overflow(z, slice, &plane_offset) ||
      __builtin_add_overflow(row_offset, plane_offset, &offset) || __builtin_add_overflow(offset, x, &offset))
    return CUDA_ERROR_INVALID_VALUE;
  uint64_t base = type == CU_MEMORYTYPE_HOST ? (uint64_t)host : address;
  if (!extent(pitch, slice, b, &nbytes) || base == 0 || __builtin_add_overflow(base, offset, first) ||
      !is_valid(*first, nbytes,
                type == CU_MEMORYTYPE_DEVICE ? DEVICE
                : type == CU_MEMORYTYPE_HOST ? HOST
                                             : EITHER))
    return CUDA_ERROR_INVALID_VALUE;
  *pitch_out = pitch;
  *slice_out = slice;
  return CUDA_SUCCESS;
}

/* Likewise for an array: x and the width are in bytes, of whole elements. */
static CUresult resolve_array(CUarray array, uint64_t x, uint64_t y, uint64_t z, const struct vgx_sim_box *b,
                              uint64_t *first, uint64_t *pitch, uint64_t *slice) {
  if (!vgx_sim_is_array(array))
    return CUDA_ERROR_INVALID_HANDLE;
  const struct vgx_sim_level *l = &array->level;
  uint64_t element = vgw_element_nbytes(array->desc.Format, array->desc.NumChannels), width = l->width * element;
  if (!element) /* no array has such a format */
    return CUDA_ERROR_INVALID_VALUE;
  if (x % element || b->width % element || x > width || b->width > width - x || y > l->height ||
      b->height > l->height - y || z > l->depth || b->depth > l->depth - z)
    return CUDA_ERROR_INVALID_VALUE;
  *first = l->base + z * l->slice + y * l->pitch + x;
  *pitch = l->pitch;
  *slice = l->slice;
  return CUDA_SUCCESS;
}

/* The box of a copy, empty if there is nothing to copy. */
static CUresult resolve(CUcontext ctx, const CUDA_MEMCPY3D *c, struct vgx_sim_box *box) {
  if (!c || c->srcLOD || c->dstLOD)
    return CUDA_ERROR_INVALID_VALUE;
  *box = (struct vgx_sim_box){.width = c->WidthInBytes, .height = c->Height, .depth = c->Depth};
  if (box->width == 0 || box->height == 0 || box->depth == 0)
    return CUDA_SUCCESS;
  uint64_t src, dst;
  CUresult result;
  if (c->srcMemoryType == CU_MEMORYTYPE_ARRAY)
    box->src_place = (struct vgx_sim_place){c->srcArray, c->srcXInBytes, c->srcY, c->srcZ};
  if (c->dstMemoryType == CU_MEMORYTYPE_ARRAY)
    box->dst_place = (struct vgx_sim_place){c->dstArray, c->dstXInBytes, c->dstY, c->dstZ};
  if (c->srcMemoryType == CU_MEMORYTYPE_ARRAY)
    result = resolve_array(c->srcArray, c->srcXInBytes, c->srcY, c->srcZ, box, &src, &box->src_pitch, &box->src_slice);
  else
    result = resolve_side(ctx->device, c->srcMemoryType, c->srcHost, c->srcDevice, c->srcXInBytes, c->srcY, c->srcZ,
                          c->srcPitch, c->srcHeight, box, &src, &box->src_pitch, &box->src_slice);
  if (result == CUDA_SUCCESS && c->dstMemoryType == CU_MEMORYTYPE_ARRAY)
    result = resolve_array(c->dstArray, c->dstXInBytes, c->dstY, c->dstZ, box, &dst, &box->dst_pitch, &box->dst_slice);
  else if (result == CUDA_SUCCESS)
    result = resolve_side(ctx->device, c->dstMemoryType, c->dstHost, c->dstDevice, c->dstXInBytes, c->dstY, c->dstZ,
                          c->dstPitch, c->dstHeight, box, &dst, &box->dst_pitch, &box->dst_slice);
  if (result != CUDA_SUCCESS)
    return result;
  box->src = (const uint8_t *)src;
  box->dst = (uint8_t *)dst;
  return CUDA_SUCCESS;
}

CUresult vgx_sim_copy_create(CUcontext ctx, const CUDA_MEMCPY3D *c, struct vgx_sim_op **op) {
  struct vgx_sim_box box;
  CUresult result = resolve(ctx, c, &box);
  if (result != CUDA_SUCCESS)
    return result;
  struct copy *copy = calloc(1, sizeof *copy);
  if (!copy)
    return CUDA_ERROR_OUT_OF_MEMORY;
  copy->op = (struct vgx_sim_op){
      .run = run_copy, .destroy = destroy_copy, .kind = VGX_SIM_OP_MEMCPY, .describe = describe_copy};
  copy->box = box;
  *op = &copy->op;
  return CUDA_SUCCESS;
}

void vgx_sim_copy_params(const struct vgx_sim_op *op, CUDA_MEMCPY3D *params) {
  const struct vgx_sim_box *box = &((const struct copy *)op)->box;
  const struct vgx_sim_place *src = &box->src_place, *dst = &box->dst_place;
  *params = (CUDA_MEMCPY3D){.srcMemoryType = src->array ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_UNIFIED,
                            .srcArray = src->array,
                            .srcXInBytes = src->x,
                            .srcY = src->y,
                            .srcZ = src->z,
                            .dstMemoryType = dst->array ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_UNIFIED,
                            .dstArray = dst->array,
                            .dstXInBytes = dst->x,
                            .dstY = dst->y,
                            .dstZ = dst->z,
                            .WidthInBytes = box->width,
                            .Height = box->height,
                            .Depth = box->depth};
  if (!src->array) {
    params->srcDevice = (CUdeviceptr)(uintptr_t)box->src;
    params->srcPitch = box->src_pitch;
    params->srcHeight = box->src_pitch ? box->src_slice / box->src_pitch : 0;
  }
  if (!dst->array) {
    params->dstDevice = (CUdeviceptr)(uintptr_t)box->dst;
    params->dstPitch = box->dst_pitch;
    params->dstHeight = box->dst_pitch ? box->dst_slice / box->dst_pitch : 0;
  }
}

static CUresult copy_3d(const CUDA_MEMCPY3D *c, CUstream handle, bool wait) {
  CUcontext ctx;
  CUstream stream;
  struct vgx_sim_box box;
  CUresult result = vgx_sim_enter_stream(handle, &ctx, &stream);
  if (result == CUDA_SUCCESS)
    result = resolve(ctx, c, &box);
  return result == CUDA_SUCCESS ? vgx_sim_submit_box(stream, &box, wait) : result;
}

static CUresult copy_2d(const CUDA_MEMCPY2D *c, CUstream handle, bool wait) {
  if (!c)
    return copy_3d(NULL, handle, wait);
  CUDA_MEMCPY3D flat = vgw_copy_of_2d(c);
  return copy_3d(&flat, handle, wait);
}

CUresult vgx_sim_cuMemcpy2D_v2(const CUDA_MEMCPY2D *pCopy) { return copy_2d(pCopy, NULL, true); }

CUresult vgx_sim_cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *pCopy, CUstream hStream) {
  return copy_2d(pCopy, hStream, false);
}

CUresult vgx_sim_cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *pCopy, CUstream hStream) {
  return copy_3d(pCopy, hStream, false);
}
