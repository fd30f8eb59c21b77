/* Interprocess events in use: streams record them, streams and threads wait for them. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "vgx_custom.h"
#include "vgx_ipc_event.h"

enum { BLOCKED_MAX = 16 };
enum { WAIT_GEQ = 0 }; /* CU_STREAM_WAIT_VALUE_GEQ: the difference is compared, so numbers may wrap */
enum { POLL_FIRST_NS = 20000, POLL_LAST_NS = 1000000, LIVENESS_NS = 100000000 };

/* A wait or a record that is queued in a stream. */
struct work {
  struct vgx_ipc_event *event;
  uint32_t number;
};

static atomic_uint blocked; /* host functions that wait: each occupies a thread of the backend */

static bool is_recorder_dead(const struct vgx_ipc_event *e, uint32_t number) {
  uint32_t mark = atomic_load(&e->page->recorder[number % VGX_IPC_SLOTS]);
  return mark && !vgx_ipc_event_is_alive(e, mark);
}

/* --- records --- */

/* For backends that cannot write a word in a stream; they do not call this once a kernel has faulted. */
static void write_done(void *argument) {
  struct work *work = argument;
  atomic_store_explicit(&work->event->page->done[work->number % VGX_IPC_SLOTS], work->number, memory_order_release);
  vgx_ipc_event_unref(work->event);
  free(work);
}

/* Enqueue a host function that holds a reference to the event until it has run. Takes over the caller's reference on
 * success. */
static CUresult submit(CUstream stream, CUhostFn function, struct vgx_ipc_event *e, uint32_t number) {
  struct work *work = malloc(sizeof *work);
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (work) {
    *work = (struct work){e, number};
    result = e->s->backend->cuLaunchHostFunc(stream, function, work);
  }
  if (result != CUDA_SUCCESS)
    free(work);
  return result;
}

CUresult vgx_vgpuIpcEventRecord(struct vgx_session *s, const struct vgw_req_vgpuIpcEventRecord *req, CUevent event,
                                CUstream stream) {
  struct vgx_ipc_event *e = vgx_ipc_event_ref(event, req->event);
  struct vgx_ipc_page *page = e->page;
  pthread_mutex_lock(&e->order);
  uint32_t number = atomic_fetch_add(&page->recorded, 1) + 1;
  _Atomic uint32_t *word = &page->done[number % VGX_IPC_SLOTS];
  atomic_store(&page->recorder[number % VGX_IPC_SLOTS], vgx_ipc_event_mark(e));
  e->own_last = number;
  CUresult result = s->backend->has_words ? s->backend->cuStreamWriteValue32_v2(stream, (uintptr_t)word, number, 0)
                                          : CUDA_ERROR_NOT_SUPPORTED;
  bool by_function = result == CUDA_ERROR_NOT_SUPPORTED;
  if (by_function)
    result = submit(stream, write_done, e, number);
  pthread_mutex_unlock(&e->order);
  if (result != CUDA_SUCCESS) /* the word will never be written, so no wait may depend on it */
    atomic_store_explicit(word, number, memory_order_release);
  if (!by_function || result != CUDA_SUCCESS)
    vgx_ipc_event_unref(e); /* after the last access to its page, which another ring's thread may now unmap */
  return result;
}

/* --- waits --- */

/* End the waits for records whose recorder has died; returns whether there were any. */
static bool release_dead(struct vgx_ipc_event *e) {
  bool found = false;
  uint32_t last = atomic_load(&e->page->recorded);
  for (uint32_t number = last - VGX_IPC_SLOTS + 1; number != last + 1; number++)
    if (!vgx_ipc_event_is_done(e, number) && is_recorder_dead(e, number) && !vgx_ipc_event_is_done(e, number)) {
      atomic_store_explicit(&e->page->done[number % VGX_IPC_SLOTS], number, memory_order_release);
      found = true;
    }
  if (found)
    vgx_log(e->s, 4, "an interprocess event's recorder died before the event came");
  return found;
}

/* Wait until the record is done. INVALID_HANDLE: the process that recorded it died before. */
static CUresult wait_done(struct vgx_ipc_event *e, uint32_t number) {
  struct timespec pause = {0, POLL_FIRST_NS};
  int64_t since_checked_ns = 0;
  while (!vgx_ipc_event_is_done(e, number) && !atomic_load(&e->s->ended)) {
    nanosleep(&pause, NULL);
    since_checked_ns += pause.tv_nsec;
    if (pause.tv_nsec < POLL_LAST_NS)
      pause.tv_nsec *= 2;
    if (since_checked_ns < LIVENESS_NS)
      continue;
    since_checked_ns = 0;
    if (release_dead(e))
      return CUDA_ERROR_INVALID_HANDLE;
  }
  return CUDA_SUCCESS;
}

static void wait_in_stream(void *argument) {
  struct work *work = argument;
  struct vgx_session *s = work->event->s;
  CUresult result = wait_done(work->event, work->number);
  if (result != CUDA_SUCCESS)
    vgx_defer(s, result);
  atomic_fetch_sub(&blocked, 1);
  vgx_ipc_event_unref(work->event);
  free(work);
}

/* Only this process can end its device's wait for a record of a worker that died. */
static void *watch_waits(void *argument) {
  struct executor_thread *t = argument;
  struct vgx_session *s = t->s;
  const struct timespec pause = {0, LIVENESS_NS};
  bool waiting = true;
  while (waiting && !atomic_load(&s->ended)) {
    nanosleep(&pause, NULL);
    waiting = false;
    pthread_mutex_lock(&s->ipc_lock);
    for (struct vgx_ipc_event *e = s->ipc_events; e; e = e->next) {
      if (vgx_ipc_event_is_done(e, e->waited))
        continue;
      waiting = true;
      if (release_dead(e))
        vgx_defer(s, CUDA_ERROR_INVALID_HANDLE);
    }
    if (!waiting)
      s->ipc_watched = false;
    pthread_mutex_unlock(&s->ipc_lock);
  }
  vgx_thread_end(t);
  return NULL;
}

static void watch(struct vgx_session *s) {
  pthread_mutex_lock(&s->ipc_lock);
  if (!s->ipc_watched)
    s->ipc_watched = vgx_thread_start(s, watch_waits, NULL, NULL);
  pthread_mutex_unlock(&s->ipc_lock);
}

CUresult vgx_vgpuIpcEventWait(struct vgx_session *s, const struct vgw_req_vgpuIpcEventWait *req, CUevent event,
                              CUstream stream) {
  CUresult result;
  struct vgx_ipc_event *e = vgx_ipc_event_ref(event, req->event);
  pthread_mutex_lock(&e->order);
  uint32_t number = atomic_load(&e->page->recorded);
  pthread_mutex_unlock(&e->order);
  if (vgx_ipc_event_is_done(e, number)) {
    vgx_ipc_event_unref(e);
    return CUDA_SUCCESS;
  }
  if (s->backend->has_words) {
    e->waited = number;
    watch(s);
    CUdeviceptr word = (uintptr_t)&e->page->done[number % VGX_IPC_SLOTS];
    result = s->backend->cuStreamWaitValue32_v2(stream, word, number, WAIT_GEQ);
    if (result != CUDA_ERROR_NOT_SUPPORTED) {
      vgx_ipc_event_unref(e);
      return result;
    }
  }
  /* Beyond BLOCKED_MAX waiting host functions, the calling thread waits in the stream's place. */
  if (atomic_fetch_add(&blocked, 1) >= BLOCKED_MAX) {
    atomic_fetch_sub(&blocked, 1);
    result = wait_done(e, number);
    vgx_ipc_event_unref(e);
    return result;
  }
  result = submit(stream, wait_in_stream, e, number);
  if (result != CUDA_SUCCESS) {
    atomic_fetch_sub(&blocked, 1);
    vgx_ipc_event_unref(e);
  }
  return result;
}

CUresult vgx_vgpuIpcEventQuery(struct vgx_session *s, const struct vgw_req_vgpuIpcEventQuery *req, CUevent event) {
  struct vgx_ipc_event *e = vgx_ipc_event_ref(event, req->event);
  (void)s;
  uint32_t number = atomic_load(&e->page->recorded);
  CUresult result = vgx_ipc_event_is_done(e, number) ? CUDA_SUCCESS
                    : is_recorder_dead(e, number)    ? CUDA_ERROR_INVALID_HANDLE
                                                     : CUDA_ERROR_NOT_READY;
  vgx_ipc_event_unref(e);
  return result;
}

CUresult vgx_vgpuIpcEventSynchronize(struct vgx_session *s, const struct vgw_req_vgpuIpcEventSynchronize *req,
                                     CUevent event) {
  struct vgx_ipc_event *e = vgx_ipc_event_ref(event, req->event);
  (void)s;
  CUresult result = wait_done(e, atomic_load(&e->page->recorded));
  vgx_ipc_event_unref(e);
  return result;
}
