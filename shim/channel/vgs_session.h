/* The process's one session: connection, command stream, and the end of both.
 *
 * A session is opened by cuInit (control phase) and attached to a worker by the first context. It has one sticky error:
 * once the connection is lost or the peer breaks the protocol, every call returns it until the program resets its
 * primary context. Thread-safe. A forked child never touches its parent's session. */
#ifndef VGS_SESSION_H
#define VGS_SESSION_H

#include "vgs_call.h"
#include "vgs_inventory.h"
#include "vgw_cuda.h"
#include <stdbool.h>
#include <stdint.h>

/* Send one record; with `wait`, sleep until its reply. Reply buffers are written only when the result is 0. Keeps
 * errno. Returns the reply's result; 0 for a queued record that was sent; the session's sticky error; NOT_INITIALIZED
 * in a forked child. */
CUresult vgs_session_call(struct vgs_call *call);

/* Waiting calls of one function, at most VGS_AHEAD: in a session without shared memory all are sent before the first
 * reply is waited for, so that a long transfer costs one round trip. Returns the first error; later calls may have
 * run. */
CUresult vgs_session_call_all(struct vgs_call *calls, uint32_t count);

/* A queued record that is encoded in place, in the ring; for calls as frequent as launches. */
struct vgs_record {
  struct vgs_ring *own, *ring;
  struct vgs_touched touched;
  uint64_t before[2];
  uint64_t nbytes;
};

/* Begin a record that touches one stream. Its body, `nbytes` (a multiple of 8, at most VGS_RECORD_NBYTES), is written
 * to the returned address and must not be read from it; then the record is sent or dropped. NULL: not possible now; the
 * caller uses vgs_session_call, which reports errors. */
enum { VGS_RECORD_NBYTES = 4096 };
void *vgs_record_begin(struct vgs_record *record, uint16_t opcode, uint32_t stream, uint64_t nbytes);
CUresult vgs_record_send(struct vgs_record *record);
void vgs_record_cancel(struct vgs_record *record);

enum vgs_life {
  VGS_LIFE_NEW, /* no cuInit has succeeded */
  VGS_LIFE_FORKED,
  VGS_LIFE_ENDED, /* the library's destructor ran */
  VGS_LIFE_READY, /* a cuInit has succeeded */
  VGS_LIFE_LOST,  /* the same, but the session has its sticky error */
};
extern int vgs_life; /* read with vgs_life_now() */
static inline enum vgs_life vgs_life_now(void) { return (enum vgs_life)__atomic_load_n(&vgs_life, __ATOMIC_ACQUIRE); }

/* Whether a cuInit has succeeded in this process, and the library has not ended. */
static inline bool vgs_life_is_open(void) { return vgs_life_now() >= VGS_LIFE_READY; }

/* 0 when calls can be made, else NOT_INITIALIZED (before cuInit, or in a forked child) or DEINITIALIZED. */
CUresult vgs_life_error(void);
static inline CUresult vgs_life_check(void) { return vgs_life_is_open() ? CUDA_SUCCESS : vgs_life_error(); }

/* Connect and read the inventory, once; later calls return 0 at once. See vgs_endpoint_find and vgs_hello for the
 * errors. */
CUresult vgs_session_open(void);

/* Make sure that a worker serves this session. */
CUresult vgs_session_attach(void);

/* Start afresh after the session was lost: new connection, new epoch, same devices. Does nothing if it is alive.
 * Returns: 0; what vgs_session_open can return; DEVICE_UNAVAILABLE when the daemon now shows other devices. */
CUresult vgs_session_reopen(void);

/* The sticky error, 0 while all is well. */
CUresult vgs_session_error(void);

/* The kernel fault (700, 719, ...) that has poisoned the process's contexts, 0 if none has. The first one is kept. */
CUresult vgs_session_fault(void);
/* `explained`: the reason has been reported to the program. */
void vgs_session_set_fault(CUresult fault, bool explained);

/* Valid from the first successful vgs_session_open to the end of the process. */
const struct vgs_inventory *vgs_inventory(void);
uint16_t vgs_session_epoch(void);
bool vgs_session_has_pinned_fd(void);
bool vgs_session_shares_memory(void); /* with the worker, by descriptors or in a region */
bool vgs_session_has_activity(void);  /* the host measures what calls have the device do */
bool vgs_session_is_limited(void);    /* the host bounds how many objects there are */
bool vgs_session_has_images(void);    /* the host keeps images by content */

/* Called by the destructor. End hook: after the connection is shut down, to join service threads. Free hook: after it,
 * if this is the process's only thread, to free the library's memory. */
extern void (*vgs_session_end_hook)(void);
extern void (*vgs_session_free_hook)(void);

/* Called in the calling thread when a reply announced device output, or reasons for failures. */
extern void (*vgs_session_output_hook)(void);
extern void (*vgs_session_reason_hook)(void);

#endif
