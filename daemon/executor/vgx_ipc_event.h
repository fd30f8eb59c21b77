/* Interprocess events: a page of shared memory that every worker which has the event maps. No backend's event is behind
 * it, so it is the same for all of them; NVIDIA's own would need files in /dev/shm, which a worker may not make.
 *
 * Records are numbered. The device, or a host function, writes a record's number to the record's slot when its stream
 * reaches it; a waiter waits for that word. Every VGX_IPC_SLOTS-th record uses the same slot: a record counts as done
 * when a later one of its slot is, which matters only if that many are under way.
 *
 * Other workers of the same tenant write to the page: all they can break is when that tenant's waits end. If a worker
 * dies before its record is done, waits for it end with INVALID_HANDLE. */
#ifndef VGX_IPC_EVENT_H
#define VGX_IPC_EVENT_H

#include "vgx_ipc.h"

enum { VGX_IPC_SLOTS = 256 };

struct vgx_ipc_page {
  _Atomic uint32_t recorded;                /* number of the last record; 0: none */
  _Atomic uint32_t done[VGX_IPC_SLOTS];     /* a record's number, once it is done */
  _Atomic uint32_t recorder[VGX_IPC_SLOTS]; /* who made it: a worker's mark (vgx_ipc_event_mark), 0: nobody */
};

/* References: the client's handle, and each piece of work in a stream that uses the page. */
struct vgx_ipc_event {
  struct vgx_session *s;
  struct vgx_ipc_page *page;
  uint32_t refs;
  _Atomic uint32_t own_last, waited; /* numbers of this session's last record, and of the last the device waits for */
  int fd;                            /* the page's, as long as this object exists: see vgx_ipc_event_mark */
  bool own, published, destroyed;    /* own: made here, not opened */
  char token[64];
  struct vgx_ipc_event *next;
};

static inline bool vgx_ipc_event_is_done(const struct vgx_ipc_event *e, uint32_t number) {
  return (int32_t)(atomic_load_explicit(&e->page->done[number % VGX_IPC_SLOTS], memory_order_acquire) - number) >= 0;
}

/* A reference to the client's event `id`, which this record names: from here on it may be destroyed meanwhile. */
struct vgx_ipc_event *vgx_ipc_event_ref(CUevent event, uint32_t id);
void vgx_ipc_event_unref(struct vgx_ipc_event *e);

/* This worker's mark in the page: a number, with a lock on the byte of the page's file that it stands for. The kernel
 * drops the lock when the process ends, which others see whatever pid namespaces they live in. It would also drop it if
 * this process closed any descriptor of the file, so `fd` stays open. 0: there is no free lock. */
uint32_t vgx_ipc_event_mark(struct vgx_ipc_event *e);

/* Whether the worker of that mark still runs. */
bool vgx_ipc_event_is_alive(const struct vgx_ipc_event *e, uint32_t mark);

/* At the session's end, after vgx_ipc_free. */
void vgx_ipc_events_free(struct vgx_session *s);

#endif
