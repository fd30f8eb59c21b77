/* Green contexts: the driver's functions. Their memory and modules are the primary context's. Each has a set of
 * multiprocessors: its kernels find only these in %smid, run on no more threads, and fit no larger cooperative launch.
 * Locking: the runtime lock. */
#include "vgx_sim_green.h"

#include <stdlib.h>
#include <string.h>

#include "vgx_sim_capture.h"
#include "vgx_sim_context.h"
#include "vgx_sim_event.h"
#include "vgx_sim_marker.h"
#include "vgx_sim_queue.h"
#include "vgx_sim_runtime.h"
#include "vgx_sim_stream.h"

enum { RESOURCE_INVALID = 0, RESOURCE_SM = 1, RESOURCE_WORKQUEUE = 10000 };
enum { GREEN_DEFAULT_STREAM = 1 };                         /* CU_GREEN_CTX_DEFAULT_STREAM, which is required */
enum { SPLIT_IGNORE_COSCHEDULING = 1, SPLIT_CLUSTER = 2 }; /* CUdevSmResourceSplit_flags */

#define GREENS_MAX 4096u /* that one process may create: their structs are never freed */
static const char MARK[8] = "vgx set";

/* The part of a resource that only the driver understands. */
struct own {
  char mark[8];
  uint32_t device;
  uint32_t divided; /* a group of a split, which is not split again */
  struct vgx_sim_multiprocessors set;
};
_Static_assert(sizeof(struct own) <= sizeof((CUdevResource *)NULL)->pad, "the driver's part of a resource");

struct CUdevResourceDesc_st {
  uint32_t magic, device;
  struct vgx_sim_multiprocessors set;
};

/* ---- resources */

/* The guideline of the driver's manual: 1 for compute capability 6, 2 for 7, 4 in twos for 8, 8 in eights from 9 on. */
static void granularity(const struct vgx_sim_device *device, unsigned flags, uint32_t *least, uint32_t *unit) {
  int64_t major = vgx_sim_attribute(device, VGX_SIM_CC_MAJOR, 9);
  *unit = major < 7 ? 1 : major < 9 || flags & SPLIT_IGNORE_COSCHEDULING ? 2 : 8;
  *least = major == 8 && !(flags & SPLIT_IGNORE_COSCHEDULING) ? 4 : *unit;
}

static CUdevResource describe(const struct vgx_sim_device *device, const struct vgx_sim_multiprocessors *set,
                              bool divided) {
  CUdevResource resource = {.type = RESOURCE_INVALID};
  struct own own = {.device = device->index, .divided = divided, .set = *set};
  resource.sm.smCount = vgx_sim_green_size(set);
  if (!resource.sm.smCount)
    return resource;
  resource.type = RESOURCE_SM;
  granularity(device, 0, &resource.sm.minSmPartitionSize, &resource.sm.smCoscheduledAlignment);
  memcpy(own.mark, MARK, sizeof own.mark);
  memcpy(resource.pad, &own, sizeof own);
  return resource;
}

static CUresult read_resource(const CUdevResource *resource, struct own *own) {
  if (resource->type != RESOURCE_SM)
    return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  memcpy(own, resource->pad, sizeof *own);
  return memcmp(own->mark, MARK, sizeof own->mark) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult check_type(int type) {
  return type == RESOURCE_SM                                ? CUDA_SUCCESS
         : type > RESOURCE_SM && type <= RESOURCE_WORKQUEUE ? CUDA_ERROR_NOT_SUPPORTED
                                                            : CUDA_ERROR_INVALID_VALUE;
}

CUresult vgx_sim_cuDeviceGetDevResource(CUdevice dev, CUdevResource *resource, int type) {
  const struct vgx_sim_device *device = vgx_sim_device_at(dev);
  struct vgx_sim_multiprocessors all = {{0}};
  if (!device)
    return CUDA_ERROR_INVALID_DEVICE;
  CUresult result = resource ? check_type(type) : CUDA_ERROR_INVALID_VALUE;
  if (result != CUDA_SUCCESS)
    return result;
  int64_t count = vgx_sim_attribute(device, VGX_SIM_SM_COUNT, 1);
  for (uint32_t i = 0; i < count && i < VGX_SIM_MULTIPROCESSORS_MAX; i++)
    all.words[i / 64] |= 1ull << i % 64;
  *resource = describe(device, &all, false);
  return CUDA_SUCCESS;
}

/* Move the first `count` members of a set to another. */
static void move(struct vgx_sim_multiprocessors *from, struct vgx_sim_multiprocessors *to, uint32_t count) {
  for (uint32_t i = 0; count; i++)
    if (vgx_sim_green_has(from, i)) {
      from->words[i / 64] &= ~(1ull << i % 64);
      to->words[i / 64] |= 1ull << i % 64;
      count--;
    }
}

CUresult vgx_sim_cuDevSmResourceSplitByCount(CUdevResource *groups, unsigned int *nbGroups, const CUdevResource *input,
                                             CUdevResource *remaining, unsigned int useFlags, unsigned int minCount) {
  struct own own;
  if (!nbGroups || !input || (groups && !*nbGroups) ||
      useFlags & ~(unsigned)(SPLIT_IGNORE_COSCHEDULING | SPLIT_CLUSTER))
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = read_resource(input, &own);
  if (result != CUDA_SUCCESS)
    return result;
  const struct vgx_sim_device *device = vgx_sim_device_at((CUdevice)own.device);
  if (!device)
    return CUDA_ERROR_INVALID_DEVICE;
  uint32_t all = vgx_sim_green_size(&own.set), least, unit;
  granularity(device, useFlags, &least, &unit);
  uint64_t each = ((uint64_t)(minCount < least ? least : minCount) + unit - 1) / unit * unit;
  if (own.divided || each > all)
    return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  uint32_t count = (uint32_t)(all / each);
  if (!groups) {
    *nbGroups = count;
    return CUDA_SUCCESS;
  }
  count = count < *nbGroups ? count : *nbGroups;
  for (uint32_t i = 0; i < count; i++) {
    struct vgx_sim_multiprocessors group = {{0}};
    move(&own.set, &group, (uint32_t)each);
    groups[i] = describe(device, &group, true);
  }
  *nbGroups = count;
  if (remaining)
    *remaining = describe(device, &own.set, true);
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuDevResourceGenerateDesc(CUdevResourceDesc *phDesc, CUdevResource *resources,
                                           unsigned int nbResources) {
  struct own own;
  if (!phDesc || !resources || !nbResources)
    return CUDA_ERROR_INVALID_VALUE;
  struct CUdevResourceDesc_st made = {.magic = VGX_SIM_RESOURCE_DESC};
  for (unsigned i = 0; i < nbResources; i++) {
    CUresult result = read_resource(&resources[i], &own);
    if (result != CUDA_SUCCESS)
      return result;
    if (i && own.device != made.device)
      return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    made.device = own.device;
    for (uint32_t word = 0; word < VGX_SIM_MULTIPROCESSORS_MAX / 64; word++) {
      if (made.set.words[word] & own.set.words[word])
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
      made.set.words[word] |= own.set.words[word];
    }
  }
  CUdevResourceDesc desc = malloc(sizeof *desc); /* the driver has no function that destroys one */
  if (!desc)
    return CUDA_ERROR_OUT_OF_MEMORY;
  *desc = made;
  *phDesc = desc;
  return CUDA_SUCCESS;
}

/* ---- green contexts */

static CUresult enter(CUgreenCtx green) {
  return green && green->magic == VGX_SIM_GREEN ? vgx_sim_check(green->primary) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult vgx_sim_cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned int flags) {
  static uint64_t greens;
  if (!phCtx || !desc || desc->magic != VGX_SIM_RESOURCE_DESC || flags != GREEN_DEFAULT_STREAM ||
      desc->device != (uint32_t)dev)
    return CUDA_ERROR_INVALID_VALUE;
  CUgreenCtx green = calloc(1, sizeof *green);
  CUcontext primary;
  CUresult result = green ? vgx_sim_cuDevicePrimaryCtxRetain(&primary, dev) : CUDA_ERROR_OUT_OF_MEMORY;
  if (result != CUDA_SUCCESS) {
    free(green);
    return result;
  }
  green->magic = VGX_SIM_GREEN;
  green->primary = primary;
  green->multiprocessors = desc->set;
  green->count = vgx_sim_green_size(&desc->set);
  vgx_sim_stream_init(&green->hub, primary, CU_STREAM_NON_BLOCKING, 0);
  green->hub.green = green;
  vgx_sim_lock();
  bool room = greens < GREENS_MAX;
  if (room) {
    green->id = ++greens;
    green->held = primary->held;
    if (green->held)
      green->held->refs++;
    green->next = primary->greens;
    primary->greens = green;
  }
  vgx_sim_unlock();
  if (!room) {
    vgx_sim_cuDevicePrimaryCtxRelease_v2(dev);
    free(green);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *phCtx = green;
  return CUDA_SUCCESS;
}

/* Its streams remain, and answer STREAM_DETACHED until they are destroyed. */
CUresult vgx_sim_cuGreenCtxDestroy(CUgreenCtx hCtx) {
  if (!hCtx || hCtx->magic != VGX_SIM_GREEN)
    return CUDA_ERROR_INVALID_CONTEXT;
  CUcontext primary = hCtx->primary;
  vgx_sim_wait_context(primary);
  vgx_sim_lock();
  bool alive = hCtx->magic == VGX_SIM_GREEN;
  for (CUgreenCtx *link = &primary->greens; alive && *link; link = &(*link)->next)
    if (*link == hCtx) {
      *link = hCtx->next;
      break;
    }
  if (alive)
    vgx_sim_green_end_one_locked(hCtx);
  vgx_sim_unlock();
  return alive ? vgx_sim_cuDevicePrimaryCtxRelease_v2((CUdevice)primary->device->index) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult vgx_sim_cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx) {
  CUresult result = pContext ? enter(hCtx) : CUDA_ERROR_INVALID_VALUE;
  if (result != CUDA_SUCCESS)
    return result;
  CUcontext made = calloc(1, sizeof *made); /* a name: vgx_sim_current finds the primary context by it */
  if (!made)
    return CUDA_ERROR_OUT_OF_MEMORY;
  made->device = hCtx->primary->device;
  made->green = hCtx;
  vgx_sim_lock();
  if (hCtx->context) {
    free(made);
    made = hCtx->context;
  }
  hCtx->context = made;
  vgx_sim_unlock();
  *pContext = made;
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuGreenCtxGetDevResource(CUgreenCtx hCtx, CUdevResource *resource, int type) {
  CUresult result = enter(hCtx);
  if (result == CUDA_SUCCESS)
    result = resource ? check_type(type) : CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS)
    *resource = describe(hCtx->primary->device, &hCtx->multiprocessors, false);
  return result;
}

CUresult vgx_sim_cuGreenCtxGetId(CUgreenCtx greenCtx, unsigned long long *greenCtxId) {
  CUresult result = greenCtxId ? enter(greenCtx) : CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS)
    *greenCtxId = greenCtx->id;
  return result;
}

CUresult vgx_sim_cuGreenCtxStreamCreate(CUstream *phStream, CUgreenCtx greenCtx, unsigned int flags, int priority) {
  CUresult result = enter(greenCtx);
  if (result == CUDA_SUCCESS && flags != CU_STREAM_NON_BLOCKING) /* required */
    result = CUDA_ERROR_INVALID_VALUE;
  return result == CUDA_SUCCESS ? vgx_sim_stream_create(greenCtx->primary, greenCtx, flags, priority, phStream)
                                : result;
}

/* ---- events of whole contexts */

/* Refuse a context of which a stream is captured, and end that capture. */
static CUresult forbid_captures(CUcontext ctx, CUgreenCtx green) {
  CUresult result = CUDA_SUCCESS;
  vgx_sim_lock();
  for (CUstream s = ctx->streams; s; s = s->next)
    if ((!green || s->green == green) && vgx_sim_is_capturing_locked(s))
      result = vgx_sim_capture_lost_locked(s, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  vgx_sim_unlock();
  return result;
}

static CUresult record(CUcontext ctx, CUgreenCtx green, CUevent event) {
  if (!event || event->magic != VGX_SIM_EVENT || event->ctx != ctx)
    return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = forbid_captures(ctx, green);
  if (result != CUDA_SUCCESS)
    return result;
  struct vgx_sim_op *op = vgx_sim_marker_op_create(!(event->flags & CU_EVENT_DISABLE_TIMING));
  if (!op)
    return CUDA_ERROR_OUT_OF_MEMORY;
  op->gathers = true;
  vgx_sim_lock();
  op->record->refs++;
  vgx_sim_event_put_locked(event, op->record);
  return vgx_sim_submit_unlock(green ? &green->hub : &ctx->hub, op, VGX_SIM_QUEUE);
}

/* What starts after *held from now on also starts after `marker`. */
static CUresult hold(CUstream hub, struct vgx_sim_marker **held, struct vgx_sim_marker *marker) {
  struct vgx_sim_op *op = vgx_sim_marker_op_create(false);
  if (!op)
    return CUDA_ERROR_OUT_OF_MEMORY;
  op->wait = marker;
  vgx_sim_lock();
  marker->refs++;
  op->hold = *held; /* its reference becomes the operation's */
  op->record->refs++;
  *held = op->record;
  return vgx_sim_submit_unlock(hub, op, VGX_SIM_QUEUE);
}

static CUresult wait(CUcontext ctx, CUgreenCtx green, CUevent event) {
  if (!event || event->magic != VGX_SIM_EVENT)
    return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = forbid_captures(ctx, green);
  if (result != CUDA_SUCCESS)
    return result;
  vgx_sim_lock();
  result = vgx_sim_capture_event_locked(event);
  struct vgx_sim_marker *marker = result == CUDA_SUCCESS ? event->marker : NULL;
  if (marker)
    marker->refs++;
  vgx_sim_unlock();
  if (!marker)
    return result;
  result = green ? hold(&green->hub, &green->held, marker) : hold(&ctx->hub, &ctx->held, marker);
  vgx_sim_lock();
  for (CUgreenCtx g = green ? NULL : ctx->greens; g && result == CUDA_SUCCESS; g = g->next)
    if (g->magic == VGX_SIM_GREEN) { /* one that is destroyed meanwhile is still there: none is freed */
      vgx_sim_unlock();
      result = hold(&g->hub, &g->held, marker);
      vgx_sim_lock();
    }
  vgx_sim_marker_unref_locked(marker);
  vgx_sim_unlock();
  return result;
}

CUresult vgx_sim_cuGreenCtxRecordEvent(CUgreenCtx hCtx, CUevent hEvent) {
  CUresult result = enter(hCtx);
  return result == CUDA_SUCCESS ? record(hCtx->primary, hCtx, hEvent) : result;
}

CUresult vgx_sim_cuGreenCtxWaitEvent(CUgreenCtx hCtx, CUevent hEvent) {
  CUresult result = enter(hCtx);
  return result == CUDA_SUCCESS ? wait(hCtx->primary, hCtx, hEvent) : result;
}

CUresult vgx_sim_cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent) {
  if (!hCtx)
    return CUDA_ERROR_INVALID_CONTEXT;
  if (hCtx->green)
    return vgx_sim_cuGreenCtxRecordEvent(hCtx->green, hEvent);
  CUresult result = vgx_sim_check(hCtx);
  return result == CUDA_SUCCESS ? record(hCtx, NULL, hEvent) : result;
}

CUresult vgx_sim_cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent) {
  if (!hCtx)
    return CUDA_ERROR_INVALID_CONTEXT;
  if (hCtx->green)
    return vgx_sim_cuGreenCtxWaitEvent(hCtx->green, hEvent);
  CUresult result = vgx_sim_check(hCtx);
  return result == CUDA_SUCCESS ? wait(hCtx, NULL, hEvent) : result;
}
