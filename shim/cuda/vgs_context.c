#include "vgs_context.h"
#include "vgs_alias.h"
#include "vgs_apart.h"
#include "vgs_api.h"
#include "vgs_area.h"
#include "vgs_capture.h"
#include "vgs_claiming.h"
#include "vgs_cls.h"
#include "vgs_device.h"
#include "vgs_enter.h"
#include "vgs_hello.h"
#include "vgs_host_end.h"
#include "vgs_limit.h"
#include "vgs_range.h"
#include "vgs_session.h"

enum { FLAGS_ALL = 0xff, FLAGS_SCHEDULE = 7 };

/* Serialises retaining, releasing, resetting and destroying; held until the worker has answered. */
static pthread_mutex_t lifecycle = PTHREAD_MUTEX_INITIALIZER;
static struct primary {
  struct vgs_context *context; /* atomic; replaced when a lost session is reopened */
  uint32_t retained, flags;    /* under lifecycle */
} primaries[VGS_DEVICE_MAX];
static uint64_t last_unique_id; /* atomic */

uint32_t *vgs_context_flags(struct vgs_context *context) {
  return context->primary ? &primaries[context->device].flags : &context->flags;
}

static struct vgs_context *make_context(CUdevice device, bool primary) {
  struct vgs_context *context = vgs_object_create(VGW_KIND_CONTEXT, 0);
  if (!context)
    return NULL;
  context->device = device;
  context->attributes = vgs_device(device)->attributes;
  context->primary = primary;
  context->wire_id = context->object.id;
  context->users = 1;
  context->unique_id = __atomic_add_fetch(&last_unique_id, 1, __ATOMIC_RELAXED);
  return context;
}

static struct vgs_context *primary_locked(CUdevice device) {
  struct primary *primary = &primaries[device];
  if (primary->context && primary->context->object.epoch != vgs_session_epoch())
    primary->context = NULL; /* it belongs to a lost session */
  if (!primary->context)
    __atomic_store_n(&primary->context, make_context(device, true), __ATOMIC_RELEASE);
  return primary->context;
}

struct vgs_context *vgs_context_primary(CUdevice device) {
  struct vgs_context *context = __atomic_load_n(&primaries[device].context, __ATOMIC_ACQUIRE);
  if (context && context->object.epoch == vgs_session_epoch())
    return context;
  pthread_mutex_lock(&lifecycle);
  context = primary_locked(device);
  pthread_mutex_unlock(&lifecycle);
  return context;
}

struct vgs_context *vgs_context_of_wire(uint32_t wire_id) {
  for (CUdevice device = 0; device < vgs_device_count(); device++) {
    struct vgs_context *context = __atomic_load_n(&primaries[device].context, __ATOMIC_ACQUIRE);
    if (context && vgs_context_is_alive(context) && context->wire_id == wire_id)
      return context;
  }
  return vgs_object_at(VGW_KIND_CONTEXT, wire_id);
}

/* Host memory of the context that the worker has mapped ends before the context does: the library's own, then the
 * program's. */
static void drop_areas(uint32_t wire_id) {
  uint32_t entered = vgs_thread_context_id;
  vgs_thread_context_id = wire_id;
  vgs_area_destroy_context(wire_id);
  vgs_host_end_context(wire_id);
  vgs_thread_context_id = entered;
}

/* Forget everything that lived in the context. */
static void drop_contents(uint32_t wire_id) {
  vgs_capture_end_context(wire_id);
  vgs_object_destroy_context(wire_id);
  vgs_range_remove_context(wire_id);
  vgs_apart_end_context(wire_id);
  vgs_claim_remove_kept();
}

static CUresult check_session(void) {
  CUresult result = vgs_session_error();
  return result ? result : vgs_session_fault();
}

/* --- primary contexts --- */

CUresult vgs_cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev) {
  if (!pctx)
    return CUDA_ERROR_INVALID_VALUE;
  if (!vgs_device(dev))
    return CUDA_ERROR_INVALID_DEVICE;
  CUresult result = check_session();
  if (result)
    return result;
  pthread_mutex_lock(&lifecycle);
  struct primary *primary = &primaries[dev];
  struct vgs_context *context = primary_locked(dev);
  if (!context)
    result = CUDA_ERROR_OUT_OF_MEMORY;
  if (!result && !vgs_context_is_alive(context)) {
    if (!context->wire_id) /* the id of its earlier life is not reused */
      context->wire_id = vgs_object_reserve_id(VGW_KIND_CONTEXT);
    vgs_thread_context_id = 0;
    __atomic_store_n(&vgs_attach_device, vgs_device_wire(dev), __ATOMIC_RELAXED);
    vgs_alias_open(dev);
    result = vgs_send_cuDevicePrimaryCtxRetain(context->wire_id, vgs_device_wire(dev));
    if (!result)
      __atomic_store_n(&context->active, 1, __ATOMIC_RELEASE);
    else
      context->wire_id = 0;
  }
  if (!result) {
    primary->retained++;
    *pctx = vgs_object_handle(context);
  }
  pthread_mutex_unlock(&lifecycle);
  return result;
}

/* Deactivate a primary context; `send` sends the request to the worker. */
static CUresult end_primary(struct primary *primary, CUdevice dev, CUresult (*send)(CUdevice)) {
  struct vgs_context *context = primary->context;
  uint32_t wire_id = context->wire_id;
  __atomic_store_n(&context->active, 0, __ATOMIC_RELEASE);
  context->wire_id = 0;
  primary->retained = 0;
  vgs_limit_reset(context);
  drop_areas(wire_id);
  CUresult result = send(vgs_device_wire(dev));
  drop_contents(wire_id);
  return result;
}

CUresult vgs_cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  if (!vgs_device(dev))
    return CUDA_ERROR_INVALID_DEVICE;
  struct primary *primary = &primaries[dev];
  pthread_mutex_lock(&lifecycle);
  struct vgs_context *context = primary->context;
  bool retained = context && primary->retained && vgs_context_is_alive(context);
  bool last = retained && primary->retained == 1;
  if (retained && !last)
    primary->retained--;
  pthread_mutex_unlock(&lifecycle);
  if (!retained)
    return CUDA_ERROR_INVALID_CONTEXT;
  if (!last)
    return CUDA_SUCCESS;
  vgs_cls_clear(context);
  pthread_mutex_lock(&lifecycle);
  CUresult result = CUDA_SUCCESS;
  if (primary->retained == 1 && vgs_context_is_alive(context))
    result = end_primary(primary, dev, vgs_send_cuDevicePrimaryCtxRelease_v2);
  pthread_mutex_unlock(&lifecycle);
  return result;
}

CUresult vgs_cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  if (!vgs_device(dev))
    return CUDA_ERROR_INVALID_DEVICE;
  struct vgs_context *context = vgs_context_primary(dev);
  if (!context)
    return CUDA_ERROR_OUT_OF_MEMORY;
  vgs_cls_clear(context);
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&lifecycle);
  if (vgs_session_error()) { /* the session is lost, and every object in it */
    for (CUdevice device = 0; device < vgs_device_count(); device++)
      primaries[device].retained = 0;
    vgs_object_destroy_all();
    vgs_range_remove_all();
    vgs_apart_destroy_all();
    vgs_area_destroy_all();
    result = vgs_session_reopen();
  } else if (vgs_context_is_alive(context)) {
    CUresult told = end_primary(&primaries[dev], dev, vgs_send_cuDevicePrimaryCtxReset_v2);
    result = vgs_session_fault() ? CUDA_SUCCESS : told; /* after a fault the driver returns success but stays faulted */
  }
  pthread_mutex_unlock(&lifecycle);
  return result;
}

bool vgs_context_flags_are_valid(unsigned flags) {
  unsigned schedule = flags & FLAGS_SCHEDULE;
  return !(flags & ~(unsigned)FLAGS_ALL) && (schedule <= 2 || schedule == 4);
}

CUresult vgs_cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
  if (!vgs_device(dev))
    return CUDA_ERROR_INVALID_DEVICE;
  if (!vgs_context_flags_are_valid(flags))
    return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&lifecycle);
  primaries[dev].flags = flags;
  pthread_mutex_unlock(&lifecycle);
  return CUDA_SUCCESS;
}

CUresult vgs_cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active) {
  if (!vgs_device(dev))
    return CUDA_ERROR_INVALID_DEVICE;
  if (!flags || !active)
    return CUDA_ERROR_INVALID_VALUE;
  struct vgs_context *context = __atomic_load_n(&primaries[dev].context, __ATOMIC_ACQUIRE);
  *flags = __atomic_load_n(&primaries[dev].flags, __ATOMIC_RELAXED);
  *active = context && vgs_context_is_alive(context);
  return CUDA_SUCCESS;
}

/* --- contexts the program makes --- */

CUresult vgs_cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev) {
  if (!pctx || !vgs_context_flags_are_valid(flags))
    return CUDA_ERROR_INVALID_VALUE;
  if (!vgs_device(dev))
    return CUDA_ERROR_INVALID_DEVICE;
  CUresult result = check_session();
  if (result)
    return result;
  struct vgs_context *context = make_context(dev, false);
  if (!context)
    return CUDA_ERROR_OUT_OF_MEMORY;
  context->flags = flags;
  vgs_thread_context_id = 0;
  __atomic_store_n(&vgs_attach_device, vgs_device_wire(dev), __ATOMIC_RELAXED);
  vgs_alias_open(dev);
  result = vgs_send_cuCtxCreate_v2(context->wire_id, flags, vgs_device_wire(dev));
  if (!result && !vgs_thread_push(vgs_object_handle(context))) {
    vgs_send_cuCtxDestroy_v2(context->wire_id);
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result) {
    vgs_object_destroy(context);
    return result;
  }
  __atomic_store_n(&context->active, 1, __ATOMIC_RELEASE);
  *pctx = vgs_object_handle(context);
  return CUDA_SUCCESS;
}

/* Execution affinity is refused: cuDeviceGetExecAffinitySupport answers 0. */
CUresult vgs_cuCtxCreate_v3(CUcontext *pctx, void *paramsArray, int numParams, unsigned int flags, CUdevice dev) {
  if (numParams < 0 || (numParams && !paramsArray))
    return CUDA_ERROR_INVALID_VALUE;
  return numParams ? CUDA_ERROR_NOT_SUPPORTED : vgs_cuCtxCreate_v2(pctx, flags, dev);
}

/* Parameters that request nothing are the same as none: CUDA 13's cuCtxCreate is called with a zeroed struct. */
CUresult vgs_cuCtxCreate_v4(CUcontext *pctx, const CUctxCreateParams *ctxCreateParams, unsigned int flags,
                            CUdevice dev) {
  if (!ctxCreateParams)
    return vgs_cuCtxCreate_v2(pctx, flags, dev);
  if (ctxCreateParams->cigParams) /* shared with a graphics API */
    return CUDA_ERROR_NOT_SUPPORTED;
  return vgs_cuCtxCreate_v3(pctx, ctxCreateParams->execAffinityParams, ctxCreateParams->numExecAffinityParams, flags,
                            dev);
}

CUresult vgs_cuCtxDestroy_v2(CUcontext ctx) {
  struct vgs_context *context = ctx ? vgs_context_find(ctx) : NULL;
  if (!ctx)
    return CUDA_ERROR_INVALID_VALUE;
  if (!context || context->primary || context->green) /* a green context's context ends with it */
    return CUDA_ERROR_INVALID_CONTEXT;
  vgs_cls_clear(context);
  int alive = 1;
  if (!__atomic_compare_exchange_n(&context->active, &alive, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    return CUDA_ERROR_INVALID_CONTEXT;
  if (vgs_thread_top() == ctx)
    vgs_thread_pop();
  uint32_t wire_id = context->wire_id;
  drop_areas(wire_id);
  vgs_thread_context_id = 0;
  CUresult result = vgs_send_cuCtxDestroy_v2(wire_id);
  drop_contents(wire_id);
  vgs_object_destroy(context);
  return result;
}

/* --- contexts that stand for green ones --- */

struct vgs_context *vgs_context_create_green(const struct vgs_green *green) {
  struct vgs_context *context = make_context(green->device, false);
  if (context)
    context->green = vgs_object_handle(green);
  return context;
}

void vgs_context_start_green(struct vgs_green *green, struct vgs_context *context) {
  __atomic_store_n(&context->active, 1, __ATOMIC_RELEASE);
  green->context = vgs_object_handle(context);
}

void vgs_green_destroy_context(struct vgs_green *green) {
  struct vgs_context *context = green->context ? vgs_context_find(green->context) : NULL;
  if (!context)
    return;
  vgs_cls_clear(context);
  __atomic_store_n(&context->active, 0, __ATOMIC_RELEASE);
  drop_areas(context->wire_id);
  drop_contents(context->wire_id);
  vgs_object_destroy(context);
  green->context = NULL;
}

CUresult vgs_cuCtxAttach(CUcontext *pctx, unsigned int flags) {
  struct vgs_context *context = vgs_context_current();
  if (!pctx || flags)
    return CUDA_ERROR_INVALID_VALUE;
  if (!context)
    return CUDA_ERROR_INVALID_CONTEXT;
  __atomic_fetch_add(&context->users, 1, __ATOMIC_RELAXED);
  *pctx = vgs_object_handle(context);
  return CUDA_SUCCESS;
}

CUresult vgs_cuCtxDetach(CUcontext ctx) {
  struct vgs_context *context = ctx ? vgs_context_find(ctx) : NULL;
  if (!context || context->primary)
    return CUDA_ERROR_INVALID_CONTEXT;
  return __atomic_sub_fetch(&context->users, 1, __ATOMIC_RELAXED) ? CUDA_SUCCESS : vgs_cuCtxDestroy_v2(ctx);
}

/* --- the thread's stack --- */

CUresult vgs_cuCtxPushCurrent_v2(CUcontext ctx) {
  if (!vgs_object_find(VGW_KIND_CONTEXT, ctx))
    return CUDA_ERROR_INVALID_CONTEXT;
  return vgs_thread_push(ctx) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult vgs_cuCtxPopCurrent_v2(CUcontext *pctx) {
  if (!vgs_thread_depth())
    return CUDA_ERROR_INVALID_CONTEXT;
  CUcontext popped = vgs_thread_pop();
  if (pctx)
    *pctx = popped;
  return CUDA_SUCCESS;
}

CUresult vgs_cuCtxSetCurrent(CUcontext ctx) {
  if (ctx && !vgs_object_find(VGW_KIND_CONTEXT, ctx))
    return CUDA_ERROR_INVALID_CONTEXT;
  vgs_thread_pop();
  if (ctx)
    vgs_thread_push(ctx);
  return CUDA_SUCCESS;
}
