/* Fills. Locking: none of its own; the queue orders the work. */
#include "vgx_sim_set.h"

#include <stdlib.h>
#include <string.h>

#include "vgx_sim_defined.h"
#include "vgx_sim_fault.h"
#include "vgx_sim_memory.h"
#include "vgx_sim_queue.h"
#include "vgx_sim_runtime.h"

#define INLINE_NBYTES_MAX (256u << 10) /* an asynchronous fill up to this size is not worth waking a thread */

struct fill {
  struct vgx_sim_op op;
  uint8_t *dst;
  uint64_t pitch, width, height; /* in bytes, elements and rows */
  uint32_t value, element_nbytes;
};

static void fill_rows(void *argument) {
  const struct fill *f = argument;
  for (uint64_t y = 0; y < f->height; y++) {
    uint8_t *row = f->dst + y * f->pitch;
    vgx_sim_watch_defined((uint64_t)row, f->width * f->element_nbytes);
    if (f->element_nbytes == 1)
      memset(row, (int)f->value, f->width);
    else if (f->element_nbytes == 2)
      for (uint64_t x = 0; x < f->width; x++)
        ((uint16_t *)row)[x] = (uint16_t)f->value;
    else
      for (uint64_t x = 0; x < f->width; x++)
        ((uint32_t *)row)[x] = f->value;
  }
}

static CUresult run_fill(struct vgx_sim_op *op) {
  struct vgx_sim_fault fault;
  CUresult result = vgx_sim_guarded(NULL, fill_rows, op, &fault);
  if (result == CUDA_SUCCESS)
    return result;
  vgx_sim_reason(CUDA_ERROR_ILLEGAL_ADDRESS, false, "fill at %p faulted at 0x%llx", (void *)((struct fill *)op)->dst,
                 (unsigned long long)fault.address);
  return CUDA_ERROR_ILLEGAL_ADDRESS;
}

static void describe_fill(const struct vgx_sim_op *op, struct vgw_activity *activity, const char **name) {
  const struct fill *f = (const struct fill *)op;
  (void)name;
  activity->kind = VGW_ACTIVITY_FILL;
  activity->nbytes = f->width * f->element_nbytes * f->height;
  activity->value = f->value;
}

void vgx_sim_fill_params(const struct vgx_sim_op *op, CUDA_MEMSET_NODE_PARAMS *params) {
  const struct fill *f = (const struct fill *)op;
  *params = (CUDA_MEMSET_NODE_PARAMS){.dst = (CUdeviceptr)f->dst,
                                      .pitch = f->pitch,
                                      .value = f->value,
                                      .elementSize = f->element_nbytes,
                                      .width = f->width,
                                      .height = f->height};
}

static void destroy_fill(struct vgx_sim_op *op) { free(op); }

/* *extent: the size from the fill's first byte to its last; 0: there is nothing to do. */
static CUresult check(const struct fill *f, uint64_t *extent) {
  uint64_t dst = (uint64_t)f->dst, row_nbytes;
  if (dst % f->element_nbytes || (f->height > 1 && f->pitch % f->element_nbytes))
    return CUDA_ERROR_INVALID_VALUE;
  *extent = 0;
  if (f->width == 0 || f->height == 0)
    return CUDA_SUCCESS;
  if (__builtin_mul_overflow(f->width, f->element_nbytes, &row_nbytes) || (f->height > 1 && f->pitch < row_nbytes) ||
      __builtin_mul_overflow(f->height - 1, f->pitch, extent) || __builtin_add_overflow(*extent, row_nbytes, extent) ||
      !vgx_sim_is_device_range(dst, *extent))
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

static struct vgx_sim_op *create(const struct fill *f) {
  struct fill *made = malloc(sizeof *made);
  if (!made)
    return NULL;
  *made = *f;
  made->op = (struct vgx_sim_op){
      .run = run_fill, .destroy = destroy_fill, .kind = VGX_SIM_OP_MEMSET, .describe = describe_fill};
  return &made->op;
}

CUresult vgx_sim_fill_create(const CUDA_MEMSET_NODE_PARAMS *p, struct vgx_sim_op **op) {
  uint64_t extent;
  if (!p || (p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4))
    return CUDA_ERROR_INVALID_VALUE;
  struct fill fill = {.dst = (uint8_t *)p->dst,
                      .pitch = p->pitch,
                      .width = p->width,
                      .height = p->height,
                      .value = p->value,
                      .element_nbytes = p->elementSize};
  CUresult result = check(&fill, &extent);
  if (result != CUDA_SUCCESS)
    return result;
  *op = create(&fill);
  return *op ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult set_rows(CUdeviceptr dst, size_t pitch, uint32_t value, uint32_t element_nbytes, size_t width,
                         size_t height, CUstream handle, bool wait) {
  CUstream stream;
  CUresult result = vgx_sim_enter_stream(handle, NULL, &stream);
  if (result != CUDA_SUCCESS)
    return result;
  struct fill direct = {.op.run = run_fill,
                        .op.describe = describe_fill,
                        .dst = (uint8_t *)dst,
                        .pitch = pitch,
                        .width = width,
                        .height = height,
                        .value = value,
                        .element_nbytes = element_nbytes};
  uint64_t extent;
  result = check(&direct, &extent);
  if (result != CUDA_SUCCESS || extent == 0)
    return result;
  /* Fills of device memory are asynchronous even in the driver's synchronous forms; of host memory they are not. */
  if (wait && !vgx_sim_device_of(dst))
    return vgx_sim_submit(stream, &direct.op, VGX_SIM_WAIT);
  if (extent <= INLINE_NBYTES_MAX) {
    result = vgx_sim_submit(stream, &direct.op, VGX_SIM_TRY);
    if (result != CUDA_ERROR_NOT_READY)
      return result;
  }
  struct vgx_sim_op *queued = create(&direct);
  return queued ? vgx_sim_submit(stream, queued, VGX_SIM_QUEUE) : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult vgx_sim_cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
  return set_rows(dstDevice, 0, uc, 1, N, 1, NULL, true);
}

CUresult vgx_sim_cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N) {
  return set_rows(dstDevice, 0, us, 2, N, 1, NULL, true);
}

CUresult vgx_sim_cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N) {
  return set_rows(dstDevice, 0, ui, 4, N, 1, NULL, true);
}

CUresult vgx_sim_cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream) {
  return set_rows(dstDevice, 0, uc, 1, N, 1, hStream, false);
}

CUresult vgx_sim_cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream) {
  return set_rows(dstDevice, 0, us, 2, N, 1, hStream, false);
}

CUresult vgx_sim_cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream) {
  return set_rows(dstDevice, 0, ui, 4, N, 1, hStream, false);
}

CUresult vgx_sim_cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                                 size_t Height) {
  return set_rows(dstDevice, dstPitch, uc, 1, Width, Height, NULL, true);
}

CUresult vgx_sim_cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                                  size_t Height) {
  return set_rows(dstDevice, dstPitch, ui, 4, Width, Height, NULL, true);
}

CUresult vgx_sim_cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                                   size_t Height, CUstream hStream) {
  return set_rows(dstDevice, dstPitch, uc, 1, Width, Height, hStream, false);
}

CUresult vgx_sim_cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                                    size_t Height, CUstream hStream) {
  return set_rows(dstDevice, dstPitch, us, 2, Width, Height, hStream, false);
}

CUresult vgx_sim_cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                                    size_t Height, CUstream hStream) {
  return set_rows(dstDevice, dstPitch, ui, 4, Width, Height, hStream, false);
}
