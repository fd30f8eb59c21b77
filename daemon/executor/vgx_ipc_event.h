/* Interprocess events: a page
 * of shared memory that every
 * worker which has the event
 * maps. No backend event is
 * used, so all backends
 * behave alike; NVIDIA's own
 * would need files in
 * /dev/shm, which a worker
 * may not make. */
#ifndef VGX_IPC_EVENT_H
#define VGX_IPC_EVENT_H

#include "vgx_ipc.h"

enum { VGX_IPC_SLOTS = 256 };

struct vgx_ipc_page {
  _Atomic uint32_t recorded;                /* number of the last record; 0: none */
  _Atomic uint32_t done[VGX_IPC_SLOTS];     /* a record's number, once it is done */
  _Atomic uint32_t recorder[VGX_IPC_SLOTS]; /* the mark of the worker that made it (vgx_ipc_event_mark), 0: none */
};

/* References: the client's handle, and each piece of work in a stream that uses the page. */
struct vgx_ipc_event {
  struct vgx_session *s;
  struct vgx_ipc_page *page;
  uint32_t refs;
  /* Held from when a record has its number until its work is in the stream: a wait of another thread that has read the
   * number earlier could be ahead of that work in the same stream, for ever. Host functions do not take this lock. */
  pthread_mutex_t order;
  _Atomic uint32_t own_last, waited; /* numbers of this session's last record, and of the last one the device awaits */
  int fd;                            /* the page's, as long as this object exists: see vgx_ipc_event_mark */
  bool own, published, destroyed;    /* own: made here, not opened */
  char token[64];
  struct vgx_ipc_event *next;
};

static inline bool vgx_ipc_event_is_done(const struct vgx_ipc_event *e, uint32_t number) {
  return (int32_t)(atomic_load_explicit(&e->page->done[number % VGX_IPC_SLOTS], memory_order_acquire) - number) >= 0;
}

/* Reference the client's event `id`, which this record names; other threads may destroy the id from here on. */
struct vgx_ipc_event *vgx_ipc_event_ref(CUevent event, uint32_t id);
void vgx_ipc_event_unref(struct vgx_ipc_event *e);

/* This worker's mark in the page: a number, with a lock on the byte of the page's file that it stands for. The kernel
 * releases the lock when the process ends; other processes see that in any pid namespace. It would also drop it if this
 * process closed any descriptor of the file, so `fd` stays open. 0: there is no free lock. */
uint32_t vgx_ipc_event_mark(struct vgx_ipc_event *e);

/* Whether the worker of that mark still runs. */
bool vgx_ipc_event_is_alive(const struct vgx_ipc_event *e, uint32_t mark);

/* At the session's end, after vgx_ipc_free. */
void vgx_ipc_events_free(struct vgx_session *s);

#endif
