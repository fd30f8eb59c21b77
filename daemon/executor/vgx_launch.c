/* Launches, host callbacks, device output. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <time.h>

#include "vgw_clock.h"
#include "vgx_custom.h"
#include "vgx_launch.h"
#include "vgx_session.h"

#define MAX_ATTRIBUTES 64
#define MAX_CALLBACKS 65536 /* outstanding in a session */
#define NEXT_TIMEOUT_S 10

/* The parameter block in the driver's packed form; without parameters both lists are NULL. */
#define EXTRA(params, nbytes)                                                                                          \
  {CU_LAUNCH_PARAM_BUFFER_POINTER, (void *)(params), CU_LAUNCH_PARAM_BUFFER_SIZE, &(size_t){nbytes},                   \
   CU_LAUNCH_PARAM_END}

CUresult vgx_cuLaunchKernelEx(struct vgx_session *s, const struct vgw_req_cuLaunchKernelEx *req, CUfunction function,
                              CUstream stream, const void *attrs, const void *params) {
  CUlaunchAttribute attributes[MAX_ATTRIBUTES];
  uint32_t count = req->attrs_nbytes / sizeof attributes[0];
  if (req->attrs_nbytes % sizeof attributes[0] || count > MAX_ATTRIBUTES)
    return vgx_violation(s, "launch attributes");
  if (count)
    memcpy(attributes, attrs, req->attrs_nbytes);
  for (uint32_t i = 0; i < count; i++) {
    CUlaunchAttribute *a = &attributes[i];
    if (a->id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE)
      return CUDA_ERROR_NOT_SUPPORTED;
    if (a->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT || a->id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT) {
      void *event;
      uint64_t id = (uint64_t)(uintptr_t)a->value.programmaticEvent.event;
      if (id == 0 || id > UINT32_MAX)
        return vgx_violation(s, "launch attribute's event");
      CUresult result = vgx_handle(s, VGW_KIND_EVENT, (uint32_t)id, &event);
      if (result != CUDA_SUCCESS)
        return result;
      a->value.programmaticEvent.event = event;
    }
  }
  CUlaunchConfig config = {req->gridDimX,  req->gridDimY,       req->gridDimZ, req->blockDimX, req->blockDimY,
                           req->blockDimZ, req->sharedMemBytes, stream,        attributes,     count};
  void *extra[] = EXTRA(params, req->params_nbytes);
  return s->backend->cuLaunchKernelEx(&config, function, NULL, req->params_nbytes ? extra : NULL);
}

CUresult vgx_vgpuClusterOccupancy(struct vgx_session *s, const struct vgw_req_vgpuClusterOccupancy *req,
                                  CUfunction function, const void *attrs, struct vgw_rep_vgpuClusterOccupancy *rep) {
  CUlaunchAttribute attributes[MAX_ATTRIBUTES];
  uint32_t count = req->attrs_nbytes / sizeof attributes[0];
  if (req->attrs_nbytes % sizeof attributes[0] || count > MAX_ATTRIBUTES)
    return vgx_violation(s, "launch attributes");
  memcpy(attributes, attrs, req->attrs_nbytes);
  for (uint32_t i = 0; i < count; i++) /* these attributes hold events, which would be addresses of the client */
    if (attributes[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT ||
        attributes[i].id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT)
      return vgx_violation(s, "event in an occupancy question");
  CUresult (*ask)(int *, CUfunction, const CUlaunchConfig *) =
      req->potential ? s->backend->cuOccupancyMaxPotentialClusterSize : s->backend->cuOccupancyMaxActiveClusters;
  if (!ask)
    return vgx_not_offered(s, "cluster occupancy");
  CUlaunchConfig config = {req->gridDimX,  req->gridDimY,       req->gridDimZ, req->blockDimX, req->blockDimY,
                           req->blockDimZ, req->sharedMemBytes, NULL,          attributes,     count};
  return ask(&rep->value, function, &config);
}

static _Atomic(struct vgx_session *) callbacks_of; /* the process's one session; any of its threads sets it */

/* Runs on the backend's thread, in stream order: the stream waits until the client has run its function. The argument
 * is the client's id instead of an address, because a graph can keep it for any length of time. */
static void callback_due(void *id) {
  struct vgx_session *s = callbacks_of;
  struct vgx_callback due = {.id = (uint32_t)(uintptr_t)id};
  pthread_mutex_lock(&s->callback_lock);
  struct vgx_callback **end = &s->callbacks;
  uint32_t waiting = 0;
  for (; *end; end = &(*end)->next)
    waiting++;
  if (waiting < MAX_CALLBACKS) {
    *end = &due;
    pthread_cond_signal(&s->callback_due);
    while (!due.done && !atomic_load(&s->ended))
      pthread_cond_wait(&s->callback_done, &s->callback_lock);
    for (end = &s->callbacks; *end && *end != &due; end = &(*end)->next)
      continue;
    if (*end)
      *end = due.next;
  }
  pthread_mutex_unlock(&s->callback_lock);
}

CUDA_HOST_NODE_PARAMS vgx_callback_of(struct vgx_session *s, uint32_t id) {
  callbacks_of = s;
  atomic_store(&s->has_callbacks, true);
  return (CUDA_HOST_NODE_PARAMS){.fn = callback_due, .userData = (void *)(uintptr_t)id};
}

CUresult vgx_vgpuNextCallback(struct vgx_session *s, struct vgw_rep_vgpuNextCallback *rep) {
  struct timespec deadline = vgw_deadline(NEXT_TIMEOUT_S);
  CUresult result = CUDA_ERROR_NOT_READY;
  pthread_mutex_lock(&s->callback_lock);
  for (int late = 0; result != CUDA_SUCCESS && !late && !atomic_load(&s->ended);) {
    struct vgx_callback *c = s->callbacks;
    while (c && c->delivered)
      c = c->next;
    if (c) {
      c->delivered = true;
      rep->callback = c->id;
      rep->status = CUDA_SUCCESS;
      result = CUDA_SUCCESS;
    } else {
      late = pthread_cond_clockwait(&s->callback_due, &s->callback_lock, CLOCK_MONOTONIC, &deadline);
    }
  }
  pthread_mutex_unlock(&s->callback_lock);
  return result;
}

CUresult vgx_vgpuCallbackDone(struct vgx_session *s, const struct vgw_req_vgpuCallbackDone *req) {
  CUresult result = CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&s->callback_lock);
  for (struct vgx_callback *c = s->callbacks; c; c = c->next)
    if (c->id == req->callback && c->delivered && !c->done) {
      c->done = true;
      result = CUDA_SUCCESS;
      break;
    }
  pthread_cond_broadcast(&s->callback_done);
  pthread_mutex_unlock(&s->callback_lock);
  return result;
}
