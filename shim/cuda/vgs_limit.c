/* Limits of a context. Nothing but cuCtxSetLimit changes one, so the worker is asked once for each: PyTorch asks at
 * every launch of some kernels. */
#include "vgs_limit.h"
#include "vgs_api.h"
#include "vgs_device.h"
#include "vgs_enter.h"
#include <pthread.h>

/* Never held across the worker's answer. `version` counts changes: an answer that was asked for before a change, or
 * during one, is not kept. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t version;

static void forget_locked(struct vgs_context *context, int limit) {
  context->limits_known &= ~(1u << limit);
  version++;
}

void vgs_limit_forget(struct vgs_context *context) {
  pthread_mutex_lock(&lock);
  context->limits_known = 0;
  version++;
  pthread_mutex_unlock(&lock);
}

CUresult vgs_cuCtxGetLimit(size_t *pvalue, int limit) {
  struct vgs_context *context = vgs_context_entered;
  if (!pvalue || limit < 0 || limit >= VGS_LIMIT_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  if (vgs_device(context->device)->limits[limit] == VGS_LIMIT_UNSUPPORTED)
    return CUDA_ERROR_UNSUPPORTED_LIMIT;
  pthread_mutex_lock(&lock);
  uint64_t asked_at = version;
  bool known = context->limits_known & 1u << limit;
  size_t value = context->limits[limit];
  pthread_mutex_unlock(&lock);
  if (!known) {
    CUresult result = vgs_send_cuCtxGetLimit(&value, limit);
    if (result)
      return result;
    pthread_mutex_lock(&lock);
    if (version == asked_at) {
      context->limits[limit] = value;
      context->limits_known |= 1u << limit;
    }
    pthread_mutex_unlock(&lock);
  }
  *pvalue = value;
  return CUDA_SUCCESS;
}

/* The driver may round what it is given, so the value is asked for again. */
CUresult vgs_cuCtxSetLimit(int limit, size_t value) {
  struct vgs_context *context = vgs_context_entered;
  if (limit < 0 || limit >= VGS_LIMIT_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  forget_locked(context, limit);
  pthread_mutex_unlock(&lock);
  CUresult result = vgs_send_cuCtxSetLimit(limit, value);
  pthread_mutex_lock(&lock);
  forget_locked(context, limit);
  pthread_mutex_unlock(&lock);
  return result;
}
