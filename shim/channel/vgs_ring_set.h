/* The client's rings: opening them, which thread is inside which, and appending records. */
#ifndef VGS_RING_SET_H
#define VGS_RING_SET_H

#include "vgs_session.h"
#include "vgw_ring.h"

/* The user of a ring: none; a thread that pushes, which takes a short time; its own thread, which waits for a reply. */
enum { VGS_RING_FREE, VGS_RING_PUSHING, VGS_RING_WAITING };

/* A place in the order of a ring's records; position 0: none. */
struct vgs_ring_mark {
  unsigned ring;
  uint64_t position;
};

/* Members that are not marked atomic belong to the thread that is inside the ring. */
struct vgs_ring {
  _Alignas(64) int inside; /* atomic; VGS_RING_* */
  bool taken;              /* by a thread, as its own; under the lock of vgs_ring_set.c */

  /* The members below are zeroed when the ring is opened. */
  struct vgw_ring *shared;
  uint64_t tail;
  uint64_t head;       /* the worker's head as last read: it is read again only when the ring seems full */
  uint64_t prefetched; /* cache lines up to here have been fetched for writing */
  uint64_t populated;  /* bytes of the record area whose pages are populated */
  uint64_t pushed;     /* records */
  uint64_t returned;   /* atomic; records whose call has returned: what other rings may have to wait for */
  uint32_t sequence;
  uint32_t woken;                 /* number of the worker's sleep that was ended last */
  struct vgs_ring_mark last;      /* the owner thread's last entry; only that thread uses it */
  uint64_t fenced[VGW_RINGS_MAX]; /* positions in other rings that the next record must follow: fences are pushed before
                                     it */
};

extern __attribute__((visibility("hidden"))) struct vgs_ring vgs_rings[VGW_RINGS_MAX];

/* vgs_rings[0..n) may be open. Open rings stay mapped while the caller is inside any ring. */
unsigned vgs_ring_count(void);

/* Whether rings lie in a region. The worker is then on another machine, which no futex and no descriptor reaches. */
bool vgs_ring_in_region(void);

/* Enter the calling thread's own ring. False: its session has ended; the caller must still leave it. */
bool vgs_ring_enter(struct vgs_ring *ring);

/* The same, only if the thread has a ring already. NULL: it has none, or the session has ended; there is nothing to
 * leave. */
struct vgs_ring *vgs_ring_enter_own(void);

/* Enter another thread's ring while inside the caller's own ring. False: its user may stay in it for long. */
bool vgs_ring_try_enter(struct vgs_ring *ring);
void vgs_ring_leave(struct vgs_ring *ring);

/* Called between attempts; false when it is not worth waiting any longer. `turns` counts the attempts, from 0. */
bool vgs_ring_nap(int *turns);

/* Space for a record in one piece, in a ring that the caller is in; NULL: the session is over. After
 * writing there, call publish: it makes the record visible to the worker, and wakes it. */
uint8_t *vgs_ring_reserve(struct vgs_ring *ring, uint64_t nbytes);
void vgs_ring_publish(struct vgs_ring *ring, uint64_t nbytes);

/* Append a record that nobody waits for. */
CUresult vgs_ring_push(struct vgs_ring *ring, const void *record, uint32_t nbytes);

/* Begin a new session. `offered`: its host serves rings. */
void vgs_ring_start(bool offered);

/* Rings lie in the session's share of a region (vgs_region.h), now that it is mapped. Before the first call. */
void vgs_ring_use_region(void);

/* The calling thread's ring; the first time it opens one. NULL: use the socket. */
struct vgs_ring *vgs_ring_ready(void);

bool vgs_ring_any(void); /* whether any thread has a ring */

/* Whether calls of this thread travel in a ring by now. */
bool vgs_ring_active(void);

/* How long a wait may spin before it sleeps, in ns; 0: not at all. */
uint64_t vgs_ring_spin_ns(void);

int vgs_ring_processors(void); /* that this process may use */

/* Unmap all rings. False: a thread is inside a call, and nothing was done. */
bool vgs_ring_end(void);

/* In a forked child: the rings are the parent's. */
void vgs_ring_abandon(void);

#endif
