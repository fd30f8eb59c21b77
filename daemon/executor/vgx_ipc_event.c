/* Interprocess events as objects: their pages are made, mapped, exported and opened, and unmapped when nobody uses them
 * any more. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vgx_custom.h"
#include "vgx_ipc_event.h"
#include "vgx_memory.h"

enum { PAGE_NBYTES = 4096, EVENTS_MAX = 8192 };

_Static_assert(sizeof(struct vgx_ipc_page) <= PAGE_NBYTES, "it is a page");

static uint32_t own_mark(void) {
  static _Atomic uint32_t mark;
  uint32_t known = atomic_load(&mark), drawn = 0;
  while (!known) {
    if (getrandom(&drawn, sizeof drawn, 0) != (ssize_t)sizeof drawn)
      return 0;
    drawn &= INT32_MAX;
    known = drawn && atomic_compare_exchange_strong(&mark, &known, drawn) ? drawn : known;
  }
  return known;
}

static struct flock byte_of(uint32_t mark) {
  return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = PAGE_NBYTES + (off_t)mark, .l_len = 1};
}

uint32_t vgx_ipc_event_mark(struct vgx_ipc_event *e) {
  uint32_t mark = own_mark();
  struct flock lock = byte_of(mark);
  return mark && fcntl(e->fd, F_SETLK, &lock) == 0 ? mark : 0;
}

bool vgx_ipc_event_is_alive(const struct vgx_ipc_event *e, uint32_t mark) {
  struct flock lock = byte_of(mark);
  return mark == own_mark() || fcntl(e->fd, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

/* Take the events out of the list that are destroyed, have no work waiting for them and no record under way. */
static struct vgx_ipc_event *take_unused_locked(struct vgx_session *s) {
  struct vgx_ipc_event *unused = NULL;
  for (struct vgx_ipc_event **link = &s->ipc_events, *e; (e = *link);) {
    if (!e->destroyed || e->refs || !vgx_ipc_event_is_done(e, e->own_last) || !vgx_ipc_event_is_done(e, e->waited)) {
      link = &e->next;
      continue;
    }
    *link = e->next;
    s->ipc_event_count--;
    e->next = unused;
    unused = e;
  }
  return unused;
}

/* Not under ipc_lock: unregistering waits for the work of all streams, of which host functions take that lock. */
static void free_unused(struct vgx_session *s, struct vgx_ipc_event *unused) {
  for (struct vgx_ipc_event *e; (e = unused);) {
    unused = e->next;
    s->backend->cuMemHostUnregister(e->page);
    munmap(e->page, PAGE_NBYTES);
    close(e->fd);
    free(e);
  }
}

/* Map `fd` as an event, which owns the descriptor on success. */
static CUresult enter_page(struct vgx_session *s, int fd, struct vgx_ipc_event **made) {
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  struct vgx_ipc_event *e = calloc(1, sizeof *e);
  void *at = mmap(NULL, PAGE_NBYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (e && at != MAP_FAILED)
    result = vgx_register(s, at, PAGE_NBYTES);
  if (result == CUDA_SUCCESS) {
    *e = (struct vgx_ipc_event){.s = s, .page = at, .fd = fd};
    pthread_mutex_init(&e->order, NULL);
    pthread_mutex_lock(&s->ipc_lock);
    struct vgx_ipc_event *unused = take_unused_locked(s);
    if (s->ipc_event_count < EVENTS_MAX) {
      e->next = s->ipc_events;
      s->ipc_events = e;
      s->ipc_event_count++;
    } else {
      result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&s->ipc_lock);
    free_unused(s, unused);
    if (result != CUDA_SUCCESS)
      s->backend->cuMemHostUnregister(at);
  }
  if (result == CUDA_SUCCESS) {
    *made = e;
    return CUDA_SUCCESS;
  }
  if (at != MAP_FAILED)
    munmap(at, PAGE_NBYTES);
  free(e);
  return result;
}

CUresult vgx_vgpuIpcEventCreate(struct vgx_session *s, const struct vgw_req_vgpuIpcEventCreate *req, CUevent *event) {
  struct vgx_ipc_event *e;
  (void)req;
  if (!vgx_ipc_is_there() || !s->backend->cuLaunchHostFunc)
    return vgx_not_offered(s, "cuEventCreate with CU_EVENT_INTERPROCESS");
  int fd = memfd_create("vgpu-event", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0 || ftruncate(fd, PAGE_NBYTES) != 0 ||
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    if (fd >= 0)
      close(fd);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  CUresult result = enter_page(s, fd, &e);
  if (result == CUDA_SUCCESS) {
    *event = (CUevent)e;
    e->own = true;
  } else {
    close(fd);
  }
  return result;
}

struct vgx_ipc_event *vgx_ipc_event_ref(CUevent event, uint32_t id) {
  struct vgx_ipc_event *e = (struct vgx_ipc_event *)event;
  pthread_mutex_lock(&e->s->ipc_lock);
  e->refs++;
  pthread_mutex_unlock(&e->s->ipc_lock);
  vgx_record_unref_one(VGW_KIND_IPC_EVENT, id);
  return e;
}

void vgx_ipc_event_unref(struct vgx_ipc_event *e) {
  struct vgx_session *s = e->s;
  pthread_mutex_lock(&s->ipc_lock);
  e->refs--;
  pthread_mutex_unlock(&s->ipc_lock);
}

CUresult vgx_cuIpcGetEventHandle(struct vgx_session *s, const struct vgw_req_cuIpcGetEventHandle *req, CUevent event,
                                 struct vgw_rep_cuIpcGetEventHandle *rep) {
  struct vgx_ipc_event *e = (struct vgx_ipc_event *)event;
  CUresult result = CUDA_SUCCESS;
  (void)req;
  pthread_mutex_lock(&s->ipc_lock);
  if (!e->own) /* opened in this worker: only the creator of an event exports it */
    result = CUDA_ERROR_INVALID_HANDLE;
  if (result == CUDA_SUCCESS && !e->published) {
    struct vgx_ipc_object object = {.fd = e->fd};
    result = vgx_ipc_publish(VGX_IPC_EVENT, &object, PAGE_NBYTES, e->token);
    e->published = result == CUDA_SUCCESS;
  }
  if (result == CUDA_SUCCESS)
    memcpy(rep->pHandle.reserved, e->token, sizeof e->token);
  pthread_mutex_unlock(&s->ipc_lock);
  return result;
}

CUresult vgx_cuIpcOpenEventHandle(struct vgx_session *s, const struct vgw_req_cuIpcOpenEventHandle *req,
                                  CUevent *event) {
  struct vgx_ipc_object object;
  struct vgx_ipc_event *e;
  struct stat st;
  uint64_t nbytes;
  if (!vgx_ipc_is_there() || !s->backend->cuLaunchHostFunc)
    return vgx_not_offered(s, "cuIpcOpenEventHandle");
  CUresult result = vgx_ipc_find(VGX_IPC_EVENT, req->handle.reserved, &object, &nbytes);
  if (result == CUDA_SUCCESS) {
    int seals = fcntl(object.fd, F_GET_SEALS);
    bool good = seals >= 0 && seals & F_SEAL_SHRINK && fstat(object.fd, &st) == 0 && st.st_size >= PAGE_NBYTES;
    result = good ? enter_page(s, object.fd, &e) : CUDA_ERROR_MAP_FAILED;
    if (object.fd >= 0 && result != CUDA_SUCCESS)
      close(object.fd);
  }
  if (result == CUDA_SUCCESS)
    *event = (CUevent)e;
  return result;
}

CUresult vgx_vgpuIpcEventDestroy(struct vgx_session *s, const struct vgw_req_vgpuIpcEventDestroy *req, CUevent event) {
  struct vgx_ipc_event *e = (struct vgx_ipc_event *)event;
  (void)req;
  pthread_mutex_lock(&s->ipc_lock);
  e->destroyed = true;
  if (e->published)
    vgx_ipc_withdraw(e->token);
  struct vgx_ipc_event *unused = take_unused_locked(s);
  pthread_mutex_unlock(&s->ipc_lock);
  free_unused(s, unused);
  return CUDA_SUCCESS;
}

void vgx_ipc_events_free(struct vgx_session *s) {
  pthread_mutex_lock(&s->ipc_lock); /* a late host function may let an event go */
  for (struct vgx_ipc_event *e = s->ipc_events, *next; e; e = next) {
    next = e->next;
    close(e->fd);
    if (!e->refs) /* otherwise the backend's work may use it until the process ends */
      free(e);
  }
  s->ipc_events = NULL;
  s->ipc_event_count = 0;
  pthread_mutex_unlock(&s->ipc_lock);
}
