/* Interprocess events: a page of shared memory that every worker which has the event maps. No backend's event is behind
 * it, so it is the same for all of them; NVIDIA's own would need files in /dev/shm, which a worker may not make.
 *
 * Records are numbered. The device, or a host function, writes a record's number to the record's slot once its stream
 * has come there; who waits for a record waits for that word. A slot serves each VGX_IPC_SLOTS-th record: a record is
 * taken for done when a later one of its slot is, which matters only where that many were under way.
 *
 * The page is written by other workers, of one tenant: all that they can spoil is when a wait of that tenant's ends. A
 * recorder that dies before it has come there would be waited for forever: its waits end with INVALID_HANDLE. */
#ifndef VGX_IPC_EVENT_H
#define VGX_IPC_EVENT_H

#include "vgx_ipc.h"

enum { VGX_IPC_SLOTS = 256 };

struct vgx_ipc_page {
  _Atomic uint32_t recorded;               /* number of the last record; 0: none */
  _Atomic uint64_t pid_namespace;          /* of its maker */
  _Atomic uint32_t done[VGX_IPC_SLOTS];    /* a record's number, once it is done */
  _Atomic int32_t recorder[VGX_IPC_SLOTS]; /* who made it: a worker's pid, 0 for one in another pid namespace */
};

/* References: the client's handle, and each piece of work in a stream that uses the page. */
struct vgx_ipc_event {
  struct vgx_session *s;
  struct vgx_ipc_page *page;
  uint32_t refs;
  _Atomic uint32_t own_last, waited; /* numbers of this session's last record, and of the last the device waits for */
  int fd;                            /* until it is exported; else -1 */
  bool published, destroyed;
  char token[64];
  struct vgx_ipc_event *next;
};

static inline bool vgx_ipc_event_is_done(const struct vgx_ipc_event *e, uint32_t number) {
  return (int32_t)(atomic_load_explicit(&e->page->done[number % VGX_IPC_SLOTS], memory_order_acquire) - number) >= 0;
}

/* The client's event `id`, which stays until let_go. */
CUresult vgx_ipc_event_take(struct vgx_session *s, uint32_t id, struct vgx_ipc_event **e);
void vgx_ipc_event_let_go(struct vgx_ipc_event *e);

uint64_t vgx_ipc_pid_namespace(void); /* this process's; 0: it cannot be told */

#endif
