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

void vgs_limit_reset(struct vgs_context *context) {
  pthread_mutex_lock(&lock);
  context->limits_known = 0;
  version++;
  pthread_mutex_unlock(&lock);
}

CUresult vgs_limit_check(int limit) {
  if (limit < 0 || limit >= VGS_LIMIT_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  bool unsupported = vgs_device(vgs_context_entered->device)->limits[limit] == VGS_LIMIT_UNSUPPORTED;
  return unsupported ? CUDA_ERROR_UNSUPPORTED_LIMIT : CUDA_SUCCESS;
}

bool vgs_limit_is_known(int limit, size_t *value, uint64_t *asked_at) {
  struct vgs_context *context = vgs_context_entered;
  pthread_mutex_lock(&lock);
  *asked_at = version;
  bool known = context->limits_known & 1u << limit;
  if (known)
    *value = context->limits[limit];
  pthread_mutex_unlock(&lock);
  return known;
}

void vgs_limit_set(int limit, size_t value, uint64_t asked_at) {
  struct vgs_context *context = vgs_context_entered;
  pthread_mutex_lock(&lock);
  if (version == asked_at) {
    context->limits[limit] = value;
    context->limits_known |= 1u << limit;
  }
  pthread_mutex_unlock(&lock);
}

CUresult vgs_limit_changes(int limit) {
  if (limit < 0 || limit >= VGS_LIMIT_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  vgs_context_entered->limits_known &= ~(1u << limit);
  version++;
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}
