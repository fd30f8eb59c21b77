#include "vgs_work_copy.h"
#include "vgs_api.h"
#include "vgs_callback.h"
#include "vgs_capture.h"
#include "vgs_copy_pinned.h"
#include "vgs_log.h"
#include "vgs_work_memory.h"
#include <stdlib.h>
#include <string.h>

struct copy_work {
  struct vgs_work work;
  struct vgs_captured_copy copy;
  struct vgs_work_memory *memory; /* memory between the two sides; NULL: both sides are in this process */
};

/* Copy bytes [offset, offset + nbytes) of the packed rows from or to one side. */
static void move_packed(const struct vgs_captured_copy *copy, const struct vgs_rows *side, uint64_t offset,
                        char *packed, uint64_t nbytes, bool to_side) {
  while (nbytes) {
    uint64_t row = offset / copy->width, x = offset % copy->width, part = copy->width - x;
    part = part < nbytes ? part : nbytes;
    char *at =
        (char *)(uintptr_t)(side->address + row / copy->height * side->slice + row % copy->height * side->pitch + x);
    if (to_side)
      memmove(at, packed, part);
    else
      memmove(packed, at, part);
    offset += part;
    packed += part;
    nbytes -= part;
  }
}

static void move_here(const struct vgs_captured_copy *copy) {
  for (uint64_t row = 0; row < copy->height * copy->depth; row++)
    move_packed(copy, &copy->dst, row * copy->width,
                (char *)(uintptr_t)(copy->src.address + row / copy->height * copy->src.slice +
                                    row % copy->height * copy->src.pitch),
                copy->width, true);
}

/* The worker alone has the memory between the sides, so the bytes travel in records. */
static CUresult move_in_records(const struct copy_work *work, const struct vgs_rows *side, uint64_t total,
                                bool to_side) {
  CUresult result = CUDA_SUCCESS;
  char *packed = malloc(total < VGW_PIECE_NBYTES ? total : VGW_PIECE_NBYTES);
  if (!packed)
    return CUDA_ERROR_OUT_OF_MEMORY;
  for (uint64_t done = 0; done < total && !result;) {
    uint64_t nbytes = total - done < VGW_PIECE_NBYTES ? total - done : VGW_PIECE_NBYTES;
    if (to_side) {
      result = vgs_send_vgpuHostRead(work->memory->address + done, nbytes, packed);
      if (!result)
        move_packed(&work->copy, side, done, packed, nbytes, true);
    } else {
      move_packed(&work->copy, side, done, packed, nbytes, false);
      result = vgs_send_vgpuHostWrite(work->memory->address + done, nbytes, packed, false);
    }
    done += nbytes;
  }
  free(packed);
  return result;
}

static CUresult move(const struct copy_work *work) {
  const struct vgs_captured_copy *copy = &work->copy;
  if (!work->memory) {
    move_here(copy);
    return CUDA_SUCCESS;
  }
  bool to_host = copy->src.place == VGS_PLACE_DEVICE;
  const struct vgs_rows *side = to_host ? &copy->dst : &copy->src;
  uint64_t total = copy->width * copy->height * copy->depth;
  if (!work->memory->shared)
    return move_in_records(work, side, total, to_host);
  move_packed(copy, side, 0, (char *)(uintptr_t)work->memory->address, total, to_host);
  return CUDA_SUCCESS;
}

static void run_copy(struct vgs_work *work) {
  CUresult result = move((const struct copy_work *)work);
  if (result)
    vgs_log(VGS_LOG_ERROR, "a graph's copy of pageable memory failed with %d", result);
}

static void fini_copy(struct vgs_work *work) {
  struct vgs_work_memory *memory = ((struct copy_work *)work)->memory;
  if (memory)
    vgs_work_memory_release(memory);
}

/* Capture the device's part: between device memory and the memory in the middle. */
static CUresult capture_device_half(const struct vgs_captured_copy *copy, uint64_t middle, bool to_host) {
  const struct vgs_rows *device = to_host ? &copy->src : &copy->dst;
  uint64_t dst = to_host ? middle : device->address, src = to_host ? device->address : middle;
  if (copy->height == 1 && copy->depth == 1)
    return vgs_copy_pinned(to_host, dst, src, copy->width, copy->stream, true);
  CUresult result = CUDA_SUCCESS;
  for (uint64_t z = 0; z < copy->depth && !result; z++) {
    uint64_t packed = middle + z * copy->width * copy->height, slice = device->address + z * device->slice;
    result = to_host ? vgs_send_vgpuMemcpy2DOnDevice(packed, copy->width, slice, device->pitch, copy->width,
                                                     copy->height, copy->stream, true)
                     : vgs_send_vgpuMemcpy2DOnDevice(slice, device->pitch, packed, copy->width, copy->width,
                                                     copy->height, copy->stream, true);
  }
  return result;
}

/* The work of a copy; `middle`: address of the memory between its sides, 0: none. */
static CUresult create_copy(const struct vgs_captured_copy *copy, uint32_t marks, struct vgs_work **work,
                            uint64_t *middle) {
  uint64_t total;
  if (__builtin_mul_overflow(copy->width, copy->height, &total) || __builtin_mul_overflow(total, copy->depth, &total))
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = vgs_callback_start();
  if (result)
    return result;
  struct copy_work *made = malloc(sizeof *made);
  if (!made)
    return CUDA_ERROR_OUT_OF_MEMORY;
  *made = (struct copy_work){.work = {.pageable = copy->pageable, .run = run_copy, .fini = fini_copy}, .copy = *copy};
  if (copy->dst.place == VGS_PLACE_DEVICE || copy->src.place == VGS_PLACE_DEVICE)
    result = vgs_work_memory_acquire(total, &made->memory);
  *middle = made->memory ? made->memory->address : 0;
  if (!result && !vgs_work_init(&made->work, 1, VGW_CALLBACK_INTERNAL | marks)) {
    fini_copy(&made->work);
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result)
    free(made);
  else
    *work = &made->work;
  return result;
}

CUresult vgs_work_capture_copy(const struct vgs_captured_copy *copy) {
  struct vgs_work *work;
  uint64_t middle;
  if (vgs_capture_status(copy->capture) == VGS_CAPTURE_INVALIDATED)
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  CUresult result = create_copy(copy, 0, &work, &middle);
  if (result)
    return result;
  if (!vgs_capture_add_work(copy->capture, work))
    result = CUDA_ERROR_OUT_OF_MEMORY;
  if (!result && copy->src.place == VGS_PLACE_DEVICE)
    result = capture_device_half(copy, middle, true);
  if (!result)
    result = vgs_send_vgpuHostCallback(work->id, copy->stream, true);
  if (!result && copy->dst.place == VGS_PLACE_DEVICE)
    result = capture_device_half(copy, middle, false);
  vgs_work_unref(work);
  return result;
}

CUresult vgs_work_copy(const struct vgs_captured_copy *copy, struct vgs_work **work, struct vgs_copy_in_place *device) {
  uint64_t middle;
  CUresult result = create_copy(copy, VGW_CALLBACK_WHOLE_COPY, work, &middle);
  *device = (struct vgs_copy_in_place){0};
  if (result || !middle)
    return result;
  bool to_host = copy->src.place == VGS_PLACE_DEVICE;
  const struct vgs_rows *side = to_host ? &copy->src : &copy->dst;
  *device = (struct vgs_copy_in_place){.dst = middle,
                                       .dst_pitch = copy->width,
                                       .dst_rows = copy->height,
                                       .src = side->address,
                                       .src_pitch = side->pitch,
                                       .src_rows = side->slice / side->pitch,
                                       .width = copy->width,
                                       .height = copy->height,
                                       .depth = copy->depth};
  if (!to_host) {
    device->dst = side->address;
    device->dst_pitch = side->pitch;
    device->dst_rows = side->slice / side->pitch;
    device->src = middle;
    device->src_pitch = copy->width;
    device->src_rows = copy->height;
  }
  return CUDA_SUCCESS;
}
