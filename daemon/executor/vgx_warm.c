/* A context created before its client connects. The worker retains the device's primary context, and the client's first
 * retain then finds it ready. The worker then drops its own reference, so that only the client's references count: its
 * last release destroys the context, and an unused context is freed when the client creates its first one. */
#include <stdatomic.h>

#include "vgx_backend.h"
#include "vgx_serve.h"
#include "vgx_warm.h"

static struct vgx_backend warm; /* the backend, except for the functions that end the waiting */
static const struct vgx_backend *cold;
static atomic_int held = -1; /* the device whose primary context we retain */

static void give_back(void) {
  int device = atomic_exchange(&held, -1);
  if (device >= 0)
    cold->cuDevicePrimaryCtxRelease_v2(device);
}

static CUresult retain(CUcontext *context, CUdevice device) {
  CUresult result = cold->cuDevicePrimaryCtxRetain(context, device);
  give_back();
  return result;
}

static CUresult create(CUcontext *context, unsigned int flags, CUdevice device) {
  CUresult result = cold->cuCtxCreate_v2(context, flags, device);
  give_back();
  return result;
}

static CUresult reset(CUdevice device) {
  give_back();
  return cold->cuDevicePrimaryCtxReset_v2(device);
}

const struct vgx_backend *vgx_warm_backend(const struct vgx_backend *backend, int32_t device) {
  CUcontext context;
  if (!backend->cuDevicePrimaryCtxRetain || !backend->cuDevicePrimaryCtxRelease_v2 ||
      backend->cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS)
    return NULL;
  cold = backend;
  atomic_store(&held, device);
  warm = *backend;
  warm.cuDevicePrimaryCtxRetain = retain;
  if (backend->cuCtxCreate_v2)
    warm.cuCtxCreate_v2 = create;
  if (backend->cuDevicePrimaryCtxReset_v2)
    warm.cuDevicePrimaryCtxReset_v2 = reset;
  return &warm;
}
