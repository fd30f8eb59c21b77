/* Interprocess events: a page of shared memory that every worker which has the event maps. No backend's event is behind
 * it, so it is the same for all of them; NVIDIA's own would need files in /dev/shm, which a worker may not make.
 *
 * Records are numbered. The device, or a host function, writes a record's number to the record's slot once its stream
 * has come there; who waits for a record waits for that word. A slot serves each SLOTS-th record: a record is taken for
 * done when a later one of its slot is, which matters only where that many were under way.
 *
 * The page is written by other workers, of one tenant: all that they can spoil is when a wait of that tenant's ends. A
 * recorder that dies before it has come there would be waited for forever: its waits end with INVALID_HANDLE. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "vgx_custom.h"
#include "vgx_ipc.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

enum { SLOTS = 256, PAGE_NBYTES = 4096, EVENTS_MAX = 8192, BLOCKED_MAX = 16 };
enum { WAIT_GEQ = 0 }; /* CU_STREAM_WAIT_VALUE_GEQ: the difference is compared, so numbers may wrap */
enum { POLL_FIRST_NS = 20000, POLL_LAST_NS = 1000000, LIVENESS_NS = 100000000 };

struct page {
  _Atomic uint32_t recorded;       /* number of the last record; 0: none */
  _Atomic uint64_t pid_namespace;  /* of its maker */
  _Atomic uint32_t done[SLOTS];    /* a record's number, once it is done */
  _Atomic int32_t recorder[SLOTS]; /* who made it: a worker's pid, 0 for one in another pid namespace */
};
_Static_assert(sizeof(struct page) <= PAGE_NBYTES, "it is a page");

/* References: the client's handle, and each piece of work in a stream that uses the page. */
struct vgx_ipc_event {
  struct vgx_session *s;
  struct page *page;
  uint32_t refs;
  _Atomic uint32_t own_last, waited; /* numbers of this session's last record, and of the last the device waits for */
  int fd;                            /* until it is exported; else -1 */
  bool published, destroyed;
  char token[64];
  struct vgx_ipc_event *next;
};

/* A wait, or a record, that is in a stream. */
struct work {
  struct vgx_ipc_event *event;
  uint32_t number;
};

static atomic_uint blocked; /* host functions that wait: each keeps a thread of the backend's */

static uint64_t pid_namespace(void) {
  struct stat st;
  return stat("/proc/self/ns/pid", &st) == 0 ? (uint64_t)st.st_ino : 0;
}

static bool is_done(const struct page *page, uint32_t number) {
  return (int32_t)(atomic_load_explicit(&page->done[number % SLOTS], memory_order_acquire) - number) >= 0;
}

static bool is_recorder_dead(const struct page *page, uint32_t number) {
  int32_t pid = atomic_load(&page->recorder[number % SLOTS]);
  if (pid <= 0 || pid == getpid())
    return false;
  int fd = (int)syscall(SYS_pidfd_open, pid, 0);
  if (fd >= 0)
    close(fd);
  return fd < 0 && errno == ESRCH;
}

/* Unmap what nobody uses any more: destroyed, no work that waits for it, and no record that is under way. */
static void reap_locked(struct vgx_session *s) {
  for (struct vgx_ipc_event **link = &s->ipc_events, *e; (e = *link);) {
    if (!e->destroyed || e->refs || !is_done(e->page, e->own_last) || !is_done(e->page, e->waited)) {
      link = &e->next;
      continue;
    }
    *link = e->next;
    s->ipc_event_count--;
    s->backend->cuMemHostUnregister(e->page);
    munmap(e->page, PAGE_NBYTES);
    free(e);
  }
}

/* Map `fd`, which stays the caller's, and enter it as the client's event `id`. */
static CUresult enter_page(struct vgx_session *s, uint32_t id, int fd, struct vgx_ipc_event **made) {
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  struct vgx_ipc_event *e = calloc(1, sizeof *e);
  void *at = mmap(NULL, PAGE_NBYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (e && at != MAP_FAILED)
    result = s->backend->cuMemHostRegister_v2(at, PAGE_NBYTES, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  if (result == CUDA_SUCCESS) {
    *e = (struct vgx_ipc_event){.s = s, .page = at, .fd = -1};
    pthread_mutex_lock(&s->ipc_lock);
    reap_locked(s);
    if (s->ipc_event_count < EVENTS_MAX) {
      e->next = s->ipc_events;
      s->ipc_events = e;
      s->ipc_event_count++;
    } else {
      result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&s->ipc_lock);
    if (result != CUDA_SUCCESS)
      s->backend->cuMemHostUnregister(at);
  }
  vgx_handle_set(s, VGW_KIND_IPC_EVENT, id, result == CUDA_SUCCESS ? e : NULL);
  if (result == CUDA_SUCCESS) {
    *made = e;
    return CUDA_SUCCESS;
  }
  if (at != MAP_FAILED)
    munmap(at, PAGE_NBYTES);
  free(e);
  return result;
}

CUresult vgx_vgpuIpcEventCreate(struct vgx_session *s, const struct vgw_req_vgpuIpcEventCreate *req) {
  struct vgx_ipc_event *e;
  if (!vgx_ipc_is_there() || !s->backend->cuLaunchHostFunc)
    return vgx_not_offered(s, "cuEventCreate with CU_EVENT_INTERPROCESS");
  if (!vgx_handle_reserve(s, VGW_KIND_IPC_EVENT, req->event))
    return vgx_violation(s, "event taken");
  int fd = memfd_create("vgpu-event", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0 || ftruncate(fd, PAGE_NBYTES) != 0 ||
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    vgx_handle_set(s, VGW_KIND_IPC_EVENT, req->event, NULL);
    if (fd >= 0)
      close(fd);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  CUresult result = enter_page(s, req->event, fd, &e);
  if (result == CUDA_SUCCESS) {
    atomic_store(&e->page->pid_namespace, pid_namespace());
    e->fd = fd;
  } else {
    close(fd);
  }
  return result;
}

static CUresult find(struct vgx_session *s, uint32_t id, struct vgx_ipc_event **e) {
  void *object;
  CUresult result = vgx_handle(s, VGW_KIND_IPC_EVENT, id, &object);
  *e = object;
  return result == CUDA_SUCCESS && !object ? CUDA_ERROR_INVALID_HANDLE : result;
}

/* The same, and it stays until let_go. */
static CUresult take(struct vgx_session *s, uint32_t id, struct vgx_ipc_event **e) {
  pthread_mutex_lock(&s->ipc_lock);
  CUresult result = find(s, id, e);
  if (result == CUDA_SUCCESS)
    (*e)->refs++;
  pthread_mutex_unlock(&s->ipc_lock);
  return result;
}

static void let_go(struct vgx_ipc_event *e) {
  struct vgx_session *s = e->s;
  pthread_mutex_lock(&s->ipc_lock);
  e->refs--;
  pthread_mutex_unlock(&s->ipc_lock);
}

CUresult vgx_cuIpcGetEventHandle(struct vgx_session *s, const struct vgw_req_cuIpcGetEventHandle *req,
                                 struct vgw_rep_cuIpcGetEventHandle *rep) {
  struct vgx_ipc_event *e;
  pthread_mutex_lock(&s->ipc_lock);
  CUresult result = find(s, req->event, &e);
  if (result == CUDA_SUCCESS && e->fd < 0 && !e->published) /* it was opened: it is another's to export */
    result = CUDA_ERROR_INVALID_HANDLE;
  if (result == CUDA_SUCCESS && !e->published) {
    struct vgx_ipc_object object = {.fd = e->fd};
    result = vgx_ipc_publish(VGX_IPC_EVENT, &object, PAGE_NBYTES, e->token);
    if (result == CUDA_SUCCESS) {
      e->published = true;
      close(e->fd);
      e->fd = -1;
    }
  }
  if (result == CUDA_SUCCESS)
    memcpy(rep->handle.reserved, e->token, sizeof e->token);
  pthread_mutex_unlock(&s->ipc_lock);
  return result;
}

CUresult vgx_cuIpcOpenEventHandle(struct vgx_session *s, const struct vgw_req_cuIpcOpenEventHandle *req) {
  struct vgx_ipc_object object;
  struct vgx_ipc_event *e;
  struct stat st;
  uint64_t nbytes;
  if (!vgx_ipc_is_there() || !s->backend->cuLaunchHostFunc)
    return vgx_not_offered(s, "cuIpcOpenEventHandle");
  if (!vgx_handle_reserve(s, VGW_KIND_IPC_EVENT, req->event))
    return vgx_violation(s, "event taken");
  CUresult result = vgx_ipc_find(VGX_IPC_EVENT, req->handle.reserved, &object, &nbytes);
  if (result == CUDA_SUCCESS) {
    int seals = fcntl(object.fd, F_GET_SEALS);
    bool good = seals >= 0 && seals & F_SEAL_SHRINK && fstat(object.fd, &st) == 0 && st.st_size >= PAGE_NBYTES;
    result = good ? enter_page(s, req->event, object.fd, &e) : CUDA_ERROR_MAP_FAILED;
    if (object.fd >= 0)
      close(object.fd);
  }
  if (result != CUDA_SUCCESS)
    vgx_handle_set(s, VGW_KIND_IPC_EVENT, req->event, NULL);
  return result;
}

CUresult vgx_vgpuIpcEventDestroy(struct vgx_session *s, const struct vgw_req_vgpuIpcEventDestroy *req) {
  struct vgx_ipc_event *e;
  pthread_mutex_lock(&s->ipc_lock);
  CUresult result = find(s, req->event, &e);
  if (result == CUDA_SUCCESS) {
    vgx_handle_set(s, VGW_KIND_IPC_EVENT, req->event, NULL);
    e->destroyed = true;
    if (e->published)
      vgx_ipc_withdraw(e->token);
    if (e->fd >= 0)
      close(e->fd);
    reap_locked(s);
  }
  pthread_mutex_unlock(&s->ipc_lock);
  return result;
}

/* --- records --- */

/* Backends that cannot write by themselves do not run this once a kernel has faulted. */
static void write_done(void *argument) {
  struct work *work = argument;
  atomic_store_explicit(&work->event->page->done[work->number % SLOTS], work->number, memory_order_release);
  let_go(work->event);
  free(work);
}

/* Give a host function to a stream, with the event kept until it has run. Takes over the caller's reference if it
 * succeeds. */
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

CUresult vgx_vgpuIpcEventRecord(struct vgx_session *s, const struct vgw_req_vgpuIpcEventRecord *req) {
  void *stream;
  struct vgx_ipc_event *e;
  CUresult result = vgx_handle(s, VGW_KIND_STREAM, req->hStream, &stream);
  if (result == CUDA_SUCCESS)
    result = take(s, req->event, &e);
  if (result != CUDA_SUCCESS)
    return result;
  struct page *page = e->page;
  uint32_t number = atomic_fetch_add(&page->recorded, 1) + 1;
  _Atomic uint32_t *word = &page->done[number % SLOTS];
  bool comparable = atomic_load(&page->pid_namespace) == pid_namespace();
  atomic_store(&page->recorder[number % SLOTS], comparable ? getpid() : 0);
  e->own_last = number;
  result = s->backend->cuStreamWriteValue32_v2 ? s->backend->cuStreamWriteValue32_v2(stream, (uintptr_t)word, number, 0)
                                               : CUDA_ERROR_NOT_SUPPORTED;
  bool by_function = result == CUDA_ERROR_NOT_SUPPORTED;
  if (by_function)
    result = submit(stream, write_done, e, number);
  if (result != CUDA_SUCCESS) /* nothing will come there: nobody shall wait for it */
    atomic_store_explicit(word, number, memory_order_release);
  if (!by_function || result != CUDA_SUCCESS)
    let_go(e); /* after the last look at its page, which another ring's thread may unmap now */
  return result;
}

/* --- waits --- */

/* End the waits for records whose recorder has died; whether there were any. */
static bool release_dead(struct vgx_ipc_event *e) {
  bool found = false;
  uint32_t last = atomic_load(&e->page->recorded);
  for (uint32_t number = last - SLOTS + 1; number != last + 1; number++)
    if (!is_done(e->page, number) && is_recorder_dead(e->page, number) && !is_done(e->page, number)) {
      atomic_store_explicit(&e->page->done[number % SLOTS], number, memory_order_release);
      found = true;
    }
  if (found)
    vgx_log(e->s, 4, "an interprocess event's recorder died before the event came");
  return found;
}

/* Until the record is done. INVALID_HANDLE: its recorder died before. */
static CUresult wait_done(struct vgx_ipc_event *e, uint32_t number) {
  struct timespec pause = {0, POLL_FIRST_NS};
  int64_t since_checked_ns = 0;
  while (!is_done(e->page, number) && !atomic_load(&e->s->ended)) {
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
  let_go(work->event);
  free(work);
}

/* Nobody but us can end the device's wait for a record of the dead. */
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
      if (is_done(e->page, e->waited))
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

CUresult vgx_vgpuIpcEventWait(struct vgx_session *s, const struct vgw_req_vgpuIpcEventWait *req) {
  void *stream;
  struct vgx_ipc_event *e;
  CUresult result = vgx_handle(s, VGW_KIND_STREAM, req->hStream, &stream);
  if (result == CUDA_SUCCESS)
    result = take(s, req->event, &e);
  if (result != CUDA_SUCCESS)
    return result;
  uint32_t number = atomic_load(&e->page->recorded);
  if (is_done(e->page, number)) {
    let_go(e);
    return CUDA_SUCCESS;
  }
  if (s->backend->cuStreamWaitValue32_v2) {
    e->waited = number;
    watch(s);
    CUdeviceptr word = (uintptr_t)&e->page->done[number % SLOTS];
    result = s->backend->cuStreamWaitValue32_v2(stream, word, number, WAIT_GEQ);
    if (result != CUDA_ERROR_NOT_SUPPORTED) {
      let_go(e);
      return result;
    }
  }
  /* Beyond so many host functions the calling thread waits in the stream's place. */
  if (atomic_fetch_add(&blocked, 1) >= BLOCKED_MAX) {
    atomic_fetch_sub(&blocked, 1);
    result = wait_done(e, number);
    let_go(e);
    return result;
  }
  result = submit(stream, wait_in_stream, e, number);
  if (result != CUDA_SUCCESS) {
    atomic_fetch_sub(&blocked, 1);
    let_go(e);
  }
  return result;
}

CUresult vgx_vgpuIpcEventQuery(struct vgx_session *s, const struct vgw_req_vgpuIpcEventQuery *req) {
  struct vgx_ipc_event *e;
  CUresult result = take(s, req->event, &e);
  if (result != CUDA_SUCCESS)
    return result;
  uint32_t number = atomic_load(&e->page->recorded);
  result = is_done(e->page, number)            ? CUDA_SUCCESS
           : is_recorder_dead(e->page, number) ? CUDA_ERROR_INVALID_HANDLE
                                               : CUDA_ERROR_NOT_READY;
  let_go(e);
  return result;
}

CUresult vgx_vgpuIpcEventSynchronize(struct vgx_session *s, const struct vgw_req_vgpuIpcEventSynchronize *req) {
  struct vgx_ipc_event *e;
  CUresult result = take(s, req->event, &e);
  if (result != CUDA_SUCCESS)
    return result;
  result = wait_done(e, atomic_load(&e->page->recorded));
  let_go(e);
  return result;
}

void vgx_ipc_events_free(struct vgx_session *s) {
  for (struct vgx_ipc_event *e = s->ipc_events, *next; e; e = next) {
    next = e->next;
    if (e->fd >= 0)
      close(e->fd);
    if (!e->refs) /* else work of the backend's still uses it, until the process ends */
      free(e);
  }
  s->ipc_events = NULL;
  s->ipc_event_count = 0;
}
