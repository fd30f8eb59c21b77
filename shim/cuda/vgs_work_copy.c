#include "vgs_work_copy.h"
#include "vgs_api.h"
#include "vgs_callback.h"
#include "vgs_capture.h"
#include "vgs_copy_pinned.h"
#include "vgs_enter.h"
#include "vgs_log.h"
#include "vgs_work_memory.h"
#include <stdlib.h>
#include <string.h>

struct copy_work {
  struct vgs_work work;
  struct vgs_captured_copy copy;
  struct vgs_work_memory *memory; /* memory between the two sides; NULL: both sides are in this process */
};

static char *row_of(const struct vgs_captured_copy *copy, const struct vgs_rows *side, uint64_t row) {
  const struct vgs_copy_side *at = &side->at;
  return (char *)(uintptr_t)(at->address + (row / copy->height * at->rows + row % copy->height) * at->pitch);
}

/* Copy bytes [offset, offset + nbytes) of the packed rows from or to one side. */
static void move_packed(const struct vgs_captured_copy *copy, const struct vgs_rows *side, uint64_t offset,
                        char *packed, uint64_t nbytes, bool to_side) {
  while (nbytes) {
    uint64_t row = offset / copy->width, x = offset % copy->width, part = copy->width - x;
    part = part < nbytes ? part : nbytes;
    char *at = row_of(copy, side, row) + x;
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
    move_packed(copy, &copy->dst, row * copy->width, row_of(copy, &copy->src, row), copy->width, true);
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

static CUmemorytype type_of(const struct vgs_rows *side) {
  return side->at.array                    ? CU_MEMORYTYPE_ARRAY
         : side->place == VGS_PLACE_DEVICE ? CU_MEMORYTYPE_DEVICE
                                           : CU_MEMORYTYPE_HOST;
}

static CUarray array_of(const struct vgs_copy_side *side) {
  const void *array = side->array ? vgs_object_at(VGW_KIND_ARRAY, side->array) : NULL;
  return array ? vgs_object_handle(array) : NULL;
}

static void fini_copy(struct vgs_work *work) {
  struct vgs_work_memory *memory = ((struct copy_work *)work)->memory;
  if (memory)
    vgs_work_memory_release(memory);
}

/* The work of a copy, and the device's part: between one side and memory in the middle; its width is 0 if there is
 * none. */
static CUresult create_copy(const struct vgs_captured_copy *copy, uint32_t marks, struct vgs_work **work,
                            struct vgs_copy_in_place *device) {
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
  bool to_host = copy->src.place == VGS_PLACE_DEVICE, from_host = copy->dst.place == VGS_PLACE_DEVICE;
  *device = (struct vgs_copy_in_place){0};
  if (to_host || from_host)
    result = vgs_work_memory_acquire(total, &made->memory);
  if (!result && made->memory) {
    struct vgs_copy_side middle = {.address = made->memory->address, .pitch = copy->width, .rows = copy->height};
    *device = (struct vgs_copy_in_place){to_host ? middle : copy->dst.at, to_host ? copy->src.at : middle, copy->width,
                                         copy->height, copy->depth};
  }
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

bool vgs_work_copy_params(uint32_t callback, CUDA_MEMCPY3D *params) {
  VGS_WORK *work = vgs_work_find(callback);
  if (!work || work->run != run_copy)
    return false;
  const struct vgs_captured_copy *copy = &((const struct copy_work *)work)->copy;
  *params = (CUDA_MEMCPY3D){.WidthInBytes = copy->width, .Height = copy->height, .Depth = copy->depth};
  const struct vgs_copy_side *dst = &copy->dst.at, *src = &copy->src.at;
  params->dstMemoryType = type_of(&copy->dst);
  params->dstHost = copy->dst.place == VGS_PLACE_DEVICE ? NULL : (void *)(uintptr_t)dst->address;
  params->dstDevice = copy->dst.place == VGS_PLACE_DEVICE ? dst->address : 0;
  params->dstArray = array_of(dst);
  params->dstPitch = dst->pitch;
  params->dstHeight = dst->rows;
  params->dstXInBytes = dst->x;
  params->dstY = dst->y;
  params->dstZ = dst->z;
  params->srcMemoryType = type_of(&copy->src);
  params->srcHost = copy->src.place == VGS_PLACE_DEVICE ? NULL : (const void *)(uintptr_t)src->address;
  params->srcDevice = copy->src.place == VGS_PLACE_DEVICE ? src->address : 0;
  params->srcArray = array_of(src);
  params->srcPitch = src->pitch;
  params->srcHeight = src->rows;
  params->srcXInBytes = src->x;
  params->srcY = src->y;
  params->srcZ = src->z;
  return true;
}

/* --- as nodes --- */

/* Make a graph of the host function and the device's copy, in the copy's direction, without an owner yet. */
static CUresult make_halves(uint32_t context, uint32_t callback, const struct vgs_copy_in_place *device, bool to_host,
                            struct vgs_object **made) {
  struct vgs_object *graph = vgs_object_create(VGW_KIND_GRAPH, 0);
  uint32_t ours = vgs_object_reserve_id(VGW_KIND_GRAPH_NODE), theirs = vgs_object_reserve_id(VGW_KIND_GRAPH_NODE);
  CUresult result = graph && ours && theirs ? vgs_send_cuGraphCreate(graph->id, 0) : CUDA_ERROR_OUT_OF_MEMORY;
  if (result) {
    if (graph)
      vgs_object_destroy(graph);
    return result;
  }
  bool after = device->width && to_host;
  if (after)
    result = vgs_send_cuGraphAddMemcpyNode(theirs, graph->id, context, VGS_COPY_SENT(*device), NULL, 0);
  if (!result)
    result = vgs_send_cuGraphAddHostNode(ours, graph->id, callback, &theirs, after);
  if (!result && device->width && !to_host)
    result = vgs_send_cuGraphAddMemcpyNode(theirs, graph->id, context, VGS_COPY_SENT(*device), &ours, 1);
  *made = graph;
  return result;
}

CUresult vgs_copy_halves_init(struct vgs_copy_halves *halves, uint32_t context, const struct vgs_captured_copy *copy) {
  struct vgs_copy_in_place device;
  *halves = (struct vgs_copy_halves){0};
  CUresult result = vgs_copy_halves_work(copy, &halves->work, &device);
  return result ? result
                : make_halves(context, halves->work->id, &device, copy->src.place == VGS_PLACE_DEVICE, &halves->graph);
}

void vgs_copy_halves_fini(struct vgs_copy_halves *halves) {
  if (halves->graph) {
    uint32_t id = halves->graph->id;
    vgs_object_destroy(halves->graph);
    vgs_send_cuGraphDestroy(id, false);
  }
  if (halves->work)
    vgs_work_unref(halves->work);
}

CUresult vgs_copy_halves_work(const struct vgs_captured_copy *copy, struct vgs_work **work,
                              struct vgs_copy_in_place *device) {
  return create_copy(copy, VGW_CALLBACK_WHOLE_COPY, work, device);
}

/* --- in captures --- */

/* Capture the device's part: between device memory and the memory in the middle. */
static CUresult capture_device_half(const struct vgs_copy_in_place *half, bool to_host, uint32_t stream) {
  const struct vgs_copy_side *dst = &half->dst, *src = &half->src;
  if (dst->array || src->array)
    return vgs_send_vgpuArrayCopy(VGS_COPY_SENT(*half), stream, true);
  if (half->height == 1 && half->depth == 1)
    return vgs_copy_pinned(to_host, dst->address, src->address, half->width, stream, true);
  CUresult result = CUDA_SUCCESS;
  for (uint64_t z = 0; z < half->depth && !result; z++)
    result = vgs_send_vgpuMemcpy2DOnDevice(dst->address + z * dst->rows * dst->pitch, dst->pitch,
                                           src->address + z * src->rows * src->pitch, src->pitch, half->width,
                                           half->height, stream, true);
  return result;
}

/* With a driver before 12.3, which has no graph yet that a node could be added to. */
static CUresult capture_apart(const struct vgs_captured_copy *copy) {
  VGS_WORK *work = NULL;
  struct vgs_copy_in_place device;
  CUresult result = create_copy(copy, 0, &work, &device);
  if (result)
    return result;
  if (!vgs_capture_add_work(copy->capture, work))
    return CUDA_ERROR_OUT_OF_MEMORY;
  bool to_host = copy->src.place == VGS_PLACE_DEVICE;
  if (device.width && to_host)
    result = capture_device_half(&device, true, copy->stream);
  if (!result)
    result = vgs_send_vgpuHostCallback(work->id, copy->stream, true);
  if (!result && device.width && !to_host)
    result = capture_device_half(&device, false, copy->stream);
  return result;
}

CUresult vgs_work_capture_copy(const struct vgs_captured_copy *copy) {
  bool owned;
  if (vgs_capture_status(copy->capture) == VGS_CAPTURE_INVALIDATED)
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  CUgraph handle = vgs_capture_graph(copy->capture, &owned);
  if (!handle)
    return capture_apart(copy);
  const struct vgs_object *graph = vgs_object_find(VGW_KIND_GRAPH, handle);
  if (!graph) /* the program has destroyed it meanwhile */
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  VGS_COPY_HALVES halves;
  CUresult result = vgs_copy_halves_init(&halves, vgs_context_entered->wire_id, copy);
  if (!result && !vgs_capture_add_work(copy->capture, halves.work))
    result = CUDA_ERROR_OUT_OF_MEMORY;
  return result ? result : vgs_send_vgpuCaptureChild(copy->stream, graph->id, halves.graph->id);
}
