/* A ring as the client uses it: which thread is inside it, appending records, and which streams may still have work. */
#ifndef VGS_RING_H
#define VGS_RING_H

#include "vgs_call.h"
#include "vgw_cuda.h"
#include "vgw_records.h"
#include "vgw_wire.h"

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
  uint64_t executed;   /* of them, as last read from the worker */
  uint64_t returned;   /* atomic; records whose call has returned: what other rings may have to wait for */
  uint32_t sequence;
  uint32_t woken;                 /* number of the worker's sleep that was ended last */
  struct vgs_ring_mark last;      /* the owner thread's last entry; only that thread uses it */
  uint64_t before;                /* what was its stream's entry before it, or VGS_TOUCH_ALONE; as `last` */
  uint64_t fenced[VGW_RINGS_MAX]; /* positions in other rings that the next record must follow: fences are pushed before
                                     it */
};

extern __attribute__((visibility("hidden"))) struct vgs_ring vgs_rings[VGW_RINGS_MAX];

/* The state of all rings; vgs_ring_set.c writes it. */
extern __attribute__((visibility("hidden"))) struct vgs_ring_state {
  unsigned opened;     /* atomic */
  uint32_t generation; /* atomic; counts sessions, so that no thread uses a ring of an earlier one */
  bool in_region;      /* set before the first call */
  uint64_t spin_ns;
} vgs_ring_state;

/* The calling thread's own ring; vgs_ring_set.c writes it. */
extern VGS_THREAD_LOCAL struct vgs_ring_owned {
  struct vgs_ring *ring;
  uint32_t generation; /* of the session that it was opened in */
} vgs_ring_owned;

/* vgs_rings[0..n) may be open. Open rings stay mapped while the caller is inside any ring. */
static inline unsigned vgs_ring_count(void) { return __atomic_load_n(&vgs_ring_state.opened, __ATOMIC_ACQUIRE); }

/* Whether any thread has a ring. */
static inline bool vgs_ring_any(void) { return vgs_ring_count(); }

/* Whether rings lie in a region. The worker is then on another machine, which no futex and no descriptor reaches. */
static inline bool vgs_ring_in_region(void) { return vgs_ring_state.in_region; }

/* How long a wait may spin before it sleeps, in ns; 0: not at all. */
static inline uint64_t vgs_ring_spin_ns(void) { return vgs_ring_state.spin_ns; }

/* The calling thread's own ring, if it has one in this session. A thread has one only once a worker serves it. */
struct vgs_ring *vgs_ring_own(void);

/* Enter the calling thread's own ring. False: its session has ended; the caller must still leave it. */
bool vgs_ring_enter(struct vgs_ring *ring);

/* The same, only if the thread has a ring already. NULL: it has none, or the session has ended; there is nothing to
 * leave. */
struct vgs_ring *vgs_ring_enter_own(void);

/* Enter another thread's ring while inside the caller's own ring. False: its user may stay in it for long. */
bool vgs_ring_try_enter(struct vgs_ring *ring);
void vgs_ring_leave(struct vgs_ring *ring);

/* VGW_NOTICE_*: what the reply to the thread's next waiting call will announce. */
uint32_t vgs_ring_notice(void);

/* Contiguous space for a record, in a ring that the caller has entered; NULL: the session is over. After
 * writing there, call publish: it makes the record visible to the worker, and wakes it. */
uint8_t *vgs_ring_reserve(struct vgs_ring *ring, uint64_t nbytes);
void vgs_ring_publish(struct vgs_ring *ring, uint64_t nbytes);

/* Append a record that nobody waits for. */
CUresult vgs_ring_push(struct vgs_ring *ring, const void *record, uint32_t nbytes);

/* The length of a call's record; INVALID_VALUE if no ring can hold it. */
CUresult vgs_ring_record_length(const struct vgs_call *call, uint64_t *length);

/* Encode a call at a reserved place. */
void vgs_ring_write(uint8_t *at, const struct vgw_header *header, const struct vgs_call *call);

/* --- progress: which streams may still have work ---
 *
 * With it, waiting for a context costs nothing when no stream has work, and is a wait for one stream when only that one
 * has. It is known for processes with one context; with a second one, all streams count as busy. */

/* A new session. */
void vgs_progress_start(void);

/* A call that leaves work in `stream` was pushed to this ring, as its record number `position`. Called by the
 * ring's thread, after the stream was touched. */
void vgs_progress_add(unsigned ring, uint32_t context, uint32_t stream, uint64_t position);

/* The position of each ring at one moment. */
struct vgs_progress_marks {
  unsigned count;
  uint64_t noted[VGW_RINGS_MAX], position[VGW_RINGS_MAX]; /* of the first `count` */
};

enum vgs_progress { VGS_PROGRESS_IDLE, VGS_PROGRESS_ONE, VGS_PROGRESS_MANY };

/* Which streams may have work: none, `stream` alone, or any. */
enum vgs_progress vgs_progress_query(uint32_t context, struct vgs_progress_marks *marks, uint32_t *stream);

/* All records that were pushed before `marks` are done. */
void vgs_progress_set_done(const struct vgs_progress_marks *marks);

/* Whether the ring's records up to this position are known to be done. */
bool vgs_progress_is_done(unsigned ring, uint64_t position);

/* Work was submitted in a way that is not recorded: nothing is known from now on. */
void vgs_progress_set_unknown(void);

/* Whether there has been more than one context, or work that was not recorded. */
bool vgs_progress_is_unknown(void);

#endif
