/* Host functions in stream order. The stream stops in the worker; a service thread here, started at the first such
 * call, asks for the next callback that is due, runs it, and lets the stream continue. */
#define _GNU_SOURCE
#include "vgs_callback.h"
#include "vgs_api.h"
#include "vgs_capture.h"
#include "vgs_enter.h"
#include "vgs_host_mirror.h"
#include "vgs_log.h"
#include "vgs_session.h"
#include "vgs_stream.h"
#include "vgs_work.h"
#include "vgw_clock.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

enum { END_TIMEOUT_S = 1 };

struct callback {
  uint32_t id;
  CUhostFn function;         /* of cuLaunchHostFunc, or */
  CUstreamCallback callback; /* of cuStreamAddCallback */
  CUstream stream;
  void *user_data;
  struct callback *next;
};

static struct {
  pthread_mutex_t lock;
  struct callback *waiting;
  uint32_t last_id;
  bool started, ended; /* of the thread */
  pthread_cond_t end;
  pthread_t thread;
  uint32_t pending; /* atomic; enqueued and not returned yet */
  int in_graphs;    /* atomic */
} service = {.lock = PTHREAD_MUTEX_INITIALIZER, .end = PTHREAD_COND_INITIALIZER};

static struct callback *take(uint32_t id) {
  pthread_mutex_lock(&service.lock);
  struct callback **link = &service.waiting;
  while (*link && (*link)->id != id)
    link = &(*link)->next;
  struct callback *found = *link;
  if (found)
    *link = found->next;
  pthread_mutex_unlock(&service.lock);
  return found;
}

bool vgs_callback_pending(void) {
  return __atomic_load_n(&service.pending, __ATOMIC_ACQUIRE) || __atomic_load_n(&service.in_graphs, __ATOMIC_RELAXED);
}

void vgs_callback_in_graph(int change) { __atomic_add_fetch(&service.in_graphs, change, __ATOMIC_RELAXED); }

static void discard(struct callback *callback) {
  free(callback);
  __atomic_sub_fetch(&service.pending, 1, __ATOMIC_ACQ_REL);
}

static void *serve(void *unused) {
  vgs_thread_serves = true;
  for (;;) {
    uint32_t id;
    int status;
    CUresult result = vgs_send_vgpuNextCallback(&id, &status);
    if (result == CUDA_ERROR_NOT_READY && vgs_life_is_open())
      continue; /* no callback is due yet */
    if (result)
      break;
    /* What kernels before it have written, and what kernels after it will read. */
    vgs_host_mirror_fetch();
    if (id & VGW_CALLBACK_OF_GRAPH) {
      if (!status)
        vgs_work_run(id);
      vgs_host_mirror_push(false);
      if (vgs_send_vgpuCallbackDone(id, false))
        break;
      continue;
    }
    struct callback *callback = take(id);
    if (!callback)
      continue;
    if (callback->callback)
      callback->callback(callback->stream, status, callback->user_data);
    else if (!status) /* a host function is not called after a fault; a callback gets the error */
      callback->function(callback->user_data);
    discard(callback);
    vgs_host_mirror_push(false);
    if (vgs_send_vgpuCallbackDone(id, false))
      break;
  }
  pthread_mutex_lock(&service.lock);
  if (vgs_life_is_open()) { /* the session is lost: a new one gets a new thread */
    service.started = false;
    pthread_detach(pthread_self());
  }
  service.ended = true;
  pthread_cond_signal(&service.end);
  pthread_mutex_unlock(&service.lock);
  return unused;
}

/* The library's threads block all signals: handling them is up to the program. */
static CUresult start_locked(void) {
  sigset_t all, before;
  if (service.started)
    return CUDA_SUCCESS;
  service.ended = false;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = pthread_create(&service.thread, NULL, serve, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (error) {
    vgs_log(VGS_LOG_ERROR, "no thread for host functions: error %d", error);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  service.started = true;
  return CUDA_SUCCESS;
}

CUresult vgs_callback_start(void) {
  pthread_mutex_lock(&service.lock);
  CUresult result = start_locked();
  pthread_mutex_unlock(&service.lock);
  return result;
}

/* In a capture: add a host node, whose function runs at each launch of the graph. */
static CUresult capture(const struct callback *wanted, const struct vgs_stream *on, uint32_t stream) {
  if (wanted->callback) /* the manual forbids cuStreamAddCallback in a capture */
    return vgs_capture_forbid(on->capture);
  if (vgs_capture_status(on->capture) == VGS_CAPTURE_INVALIDATED)
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  CUresult result = vgs_callback_start();
  if (result)
    return result;
  struct vgs_work *work = vgs_work_function(wanted->function, wanted->user_data);
  if (!work)
    return CUDA_ERROR_OUT_OF_MEMORY;
  result = vgs_capture_add_work(on->capture, work) ? vgs_send_vgpuHostCallback(vgs_work_id(work), stream, true)
                                                   : CUDA_ERROR_OUT_OF_MEMORY;
  vgs_work_unref(work);
  return result;
}

static CUresult enqueue(const struct callback *wanted) {
  uint32_t stream;
  struct vgs_stream *on;
  CUresult result = vgs_stream_id(wanted->stream, &stream, &on);
  if (result)
    return result;
  if (on && vgs_capture_status(on->capture))
    return capture(wanted, on, stream);
  struct callback *callback = malloc(sizeof *callback);
  if (!callback)
    return CUDA_ERROR_OUT_OF_MEMORY;
  *callback = *wanted;
  pthread_mutex_lock(&service.lock);
  result = start_locked();
  if (!result) {
    callback->id = service.last_id =
        (service.last_id + 1) & ~(VGW_CALLBACK_OF_GRAPH | VGW_CALLBACK_INTERNAL | VGW_CALLBACK_WHOLE_COPY);
    callback->next = service.waiting;
    service.waiting = callback;
    __atomic_add_fetch(&service.pending, 1, __ATOMIC_ACQ_REL);
  }
  uint32_t id = callback->id;
  pthread_mutex_unlock(&service.lock);
  if (result) {
    free(callback);
    return result;
  }
  result = vgs_send_vgpuHostCallback(id, stream, false);
  if (result && (callback = take(id)))
    discard(callback);
  return result;
}

/* A marker in a capturing stream would become part of its graph; one in the legacy stream would invalidate captures in
 * other streams. */
CUresult vgs_callback_after(CUstream stream, CUhostFn function, void *argument) {
  struct callback wanted = {.function = function, .stream = stream, .user_data = argument};
  return vgs_diverted(VGS_CAPTURING) ? CUDA_ERROR_NOT_PERMITTED : enqueue(&wanted);
}

static void clear_retired(void *argument) {
  vgs_works_clear(argument);
  free(argument);
}

bool vgs_works_clear_after(struct vgs_works *works, CUstream stream, uint32_t context_id) {
  struct vgs_works *retired = malloc(sizeof *retired);
  if (retired)
    *retired = *works;
  *works = (struct vgs_works){0};
  bool asked = retired && vgs_thread_context_id == context_id && !vgs_callback_after(stream, clear_retired, retired);
  if (!asked)
    free(retired);
  return asked;
}

CUresult vgs_cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData) {
  if (!fn)
    return CUDA_ERROR_INVALID_VALUE;
  struct callback callback = {.function = fn, .stream = hStream, .user_data = userData};
  return enqueue(&callback);
}

CUresult vgs_cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags) {
  if (!callback || flags)
    return CUDA_ERROR_INVALID_VALUE;
  struct callback wanted = {.callback = callback, .stream = hStream, .user_data = userData};
  return enqueue(&wanted);
}

/* A callback of the program's that never returns must not keep the process from exiting. ThreadSanitizer does not
 * support a join with a deadline on the monotonic clock, so the thread signals its end. */
static void join_within(pthread_t thread, int seconds) {
  struct timespec deadline = vgw_deadline(seconds);
  int late = 0;
  pthread_mutex_lock(&service.lock);
  while (!service.ended && !late)
    late = pthread_cond_clockwait(&service.end, &service.lock, CLOCK_MONOTONIC, &deadline);
  pthread_mutex_unlock(&service.lock);
  if (late)
    vgs_log(VGS_LOG_ERROR, "a host function is still running at the end: left behind");
  else
    pthread_join(thread, NULL);
}

void vgs_callback_fini(void) {
  pthread_mutex_lock(&service.lock);
  bool started = service.started;
  service.started = false;
  pthread_mutex_unlock(&service.lock);
  if (started && !pthread_equal(service.thread, pthread_self()))
    join_within(service.thread, END_TIMEOUT_S);
  pthread_mutex_lock(&service.lock);
  struct callback *waiting = service.waiting;
  service.waiting = NULL;
  pthread_mutex_unlock(&service.lock);
  for (struct callback *callback = waiting, *next; callback; callback = next) {
    next = callback->next;
    free(callback);
  }
}
