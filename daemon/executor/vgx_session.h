/* One session: a connection, its handle tables, its backend. Shared by the executor's files; nothing outside includes
 * this.
 *
 * Threads. One thread reads the channel at a time (it holds `reading`). It executes records that cannot block, in
 * order. Before it executes one that may block it releases `reading`, so that another thread continues with later
 * records. Once a socket's client has host functions, a thread of its own reads ahead of those (vgx_ahead.h). Locks are
 * taken in the order reading > table > sending and never while a backend function runs, except `reading`. */
#ifndef VGX_SESSION_H
#define VGX_SESSION_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vgw_cuda.h"
#include "vgw_records.h"
#include "vgw_wire.h"
#include "vgx_backend.h"
#include "vgx_handle.h"
#include "vgx_handle_end.h"
#include "vgx_reason.h"
#include "vgx_serve.h"

#define VGX_TEXT_NBYTES 4096 /* longest kernel or variable name, NUL included */
#define VGX_DEVICES_MAX 64
#define VGX_MAX_FDS 128               /* descriptors received and not yet used: one for each of a client's threads */
#define VGX_MAX_MAPPINGS 65536        /* pinned regions */
#define VGX_MAX_IMAGES 4096           /* uploaded and not yet dropped */
#define VGX_IMAGE_NBYTES (1ull << 31) /* all uploaded images of a session together */
#define VGX_IMAGE_PADDING 64          /* zeros behind an image: PTX is NUL-terminated whatever the client sent */

struct vgx_mapping {
  uint64_t address;
  uint64_t nbytes;
  uint64_t region_offset; /* within the session's share, or VGX_NO_REGION */
  bool kernels_only;      /* not for copies: it is mapped read-only */
  struct vgx_page *pages; /* of vgpuHostReserve: what the client has of each, or NULL */
};
#define VGX_NO_REGION UINT64_MAX

/* A condition: the value that decides a conditional node.
 * `value` is the driver's number for it, which kernels receive. */
struct vgx_condition {
  uint64_t value;
  uint32_t graph; /* id */
};

struct vgx_sampled {
  uint64_t value; /* a texture or surface of the backend */
  bool surface;
};

struct vgx_image {
  uint32_t id;  /* 0: free place */
  bool counted; /* its bytes count against the quota here, not with the module loaded from it */
  bool busy;    /* its bytes are in use outside the lock: they may not be dropped or written */
  uint8_t *data;
  uint64_t total;
  uint64_t filled;
  uint64_t mapped_nbytes; /* 0: `data` comes from malloc */
  int upload_fd;          /* the memfd under an offered image's upload, until it is complete; else -1 */
  uint64_t begun_ns;      /* loading it, in the thread's processor time */
  uint64_t digest[4];     /* the digest that an upload was offered with */
};

/* A host function that is due: on the stack of the backend's thread that waits for the client. */
struct vgx_callback {
  uint32_t id;
  bool delivered;
  bool done;
  struct vgx_callback *next;
};

struct vgx_session {
  const struct vgx_backend *backend;
  const struct vgx_serve_options *options;
  int fd;

  pthread_mutex_t reading;
  uint8_t *input; /* bytes received and not yet executed: input[begin..end) */
  size_t begin, end;
  int fds[VGX_MAX_FDS];
  uint32_t fd_count; /* as `fds` under the lock of `ahead` */

  struct {        /* vgx_ahead.h */
    bool started; /* under `reading` */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* of what follows, and of `ended` */
    struct vgx_ahead_queue {
      struct vgx_ahead_record *records, **end;
      uint64_t nbytes; /* of these records */
    } in_turn, questions;
    bool full; /* the thread that reads waits for room */
    bool over;
  } ahead;

  pthread_mutex_t sending;
  pthread_mutex_t alone_lock; /* held by a VGX_ALONE operation; taken first of all locks */
  pthread_mutex_t table_lock; /* new ids, mappings, images */
  struct vgx_table tables[VGW_KIND_COUNT];
  struct vgx_mapping *mappings;
  uint32_t mapping_count;
  struct vgx_graph_range *graph_ranges; /* under table_lock */
  uint32_t graph_range_count;
  atomic_bool has_split;                /* some graph node is, or was */
  struct executor_thread *threads;      /* all of them; under table_lock */
  uint32_t primaries[VGX_DEVICES_MAX];  /* id of each device's primary context, 0: not retained; under table_lock */
  uint64_t quota_used[VGW_QUOTA_COUNT]; /* by this session; under table_lock */
  atomic_llong calls_left;              /* until the next look at the clock; without a limit not used */
  pthread_mutex_t pace_lock;            /* locked by the thread that is being held back */
  uint64_t paced_until_ns;              /* when the next calls are due; under pace_lock */
  atomic_uint denied[VGW_OP_COUNT];     /* calls that were denied, by opcode */
  atomic_uint quotas_told;              /* a bit for each quota whose exhaustion was reported to the client */
  uint64_t host_nbytes;                 /* of the client's memory that are mapped here; under table_lock */
  struct vgx_sampled *sampled;          /* textures and surfaces; under table_lock */
  uint32_t sampled_count, sampled_capacity;
  CUdevResource *resources; /* resources that the driver has returned; under table_lock */
  uint32_t resource_count, resource_capacity;
  struct vgx_condition *conditions; /* under table_lock */
  uint32_t condition_count, condition_capacity;
  struct vgx_image images[VGX_MAX_IMAGES];
  uint64_t image_nbytes;

  pthread_mutex_t export_lock; /* held while the backend exports, which may wait for work of streams */
  struct vgx_export *exports;
  uint32_t export_count;
  pthread_mutex_t ipc_lock;         /* events; work of streams takes it, so nobody waits for such work with it held */
  struct vgx_ipc_event *ipc_events; /* all mapped events */
  uint32_t ipc_event_count;
  bool ipc_watched; /* a thread ends the device's waits for records of workers that have died */

  pthread_mutex_t callback_lock;
  pthread_cond_t callback_due, callback_done;
  struct vgx_callback *callbacks;
  atomic_bool has_callbacks;                       /* a stream or graph has one, or had */
  _Atomic(struct vgx_ring *) rings[VGW_RINGS_MAX]; /* set by the reading thread, before the client may name it */

  /* The memory that both sides of an open ring share. */
  _Atomic(struct vgw_ring *) ring_memory[VGW_RINGS_MAX];

  atomic_uint thread_count, idle_count;
  atomic_uint logged; /* lines */
  atomic_uint progress_lines;
  atomic_int deferred;       /* CUresult of the first queued call that failed since the last blocking reply */
  atomic_bool ending, ended; /* a thread is writing the reason; it has been written */
  atomic_int reason;
  char reason_text[256];
  pthread_mutex_t exit_lock;
  pthread_cond_t exit_signal;
};

/* A reply under construction in a thread's output buffer. */
struct vgx_reply {
  uint8_t *record;         /* VGW_RECORD_NBYTES bytes */
  uint32_t length;         /* 0 until finished: header only */
  uint32_t private_nbytes; /* bytes after the header that lie in `record`; the rest are in `shared` */
  uint8_t *shared;
  bool direct; /* the variable result was written to `shared` */
};

struct vgx_ring;

/* A thread that executes records: one of those that take turns at the socket, or a ring's own. */
struct executor_thread {
  struct vgx_session *s;
  uint8_t *record; /* a private copy of the record, VGW_RECORD_NBYTES */
  uint8_t *output;
  uint32_t context; /* id of the context this thread has made current */
  uint32_t flags;   /* of the operation it executes */
  struct vgx_held held;
  struct executor_thread *next, *previous; /* of the session */
  struct vgx_ring *ring;
  uint8_t *shared; /* where the client reads a ring's replies; else NULL */
  void (*answer)(struct executor_thread *, const struct vgw_header *, const struct vgx_reply *);
};

enum {
  VGX_NEEDS_CONTEXT = 1,
  VGX_BLOCKS = 2,
  VGX_ABOUT_CHANNEL = 4, /* the program did not make this call, so its reply carries no queued call's error */
  VGX_NOT_IN_RING = 8,
  VGX_DATA = 16,       /* no check depends on its variable part, which may stay where the client can overwrite it */
  VGX_AWAITED = 32,    /* the client continues when it sees the effect, without a reply */
  VGX_SUBMITS = 64,    /* leaves work for the device's processors, which waits for its tenant's turn */
  VGX_ALONE = 128,     /* no other such operation of the session runs meanwhile */
  VGX_OVERTAKES = 256, /* records that came earlier; enters no context, as a driver may wait there */
};

struct vgx_operation {
  const char *name;
  /* `fixed` and `objects`: the request's fixed fields, and what `handles` name */
  CUresult (*dispatch)(struct vgx_session *, const void *fixed, void *const *objects, struct vgw_cursor *,
                       struct vgx_reply *);
  uint32_t flags;
  uint32_t fixed_nbytes; /* of the request's fixed fields */
  uint32_t handle_count;
  struct vgx_ref handles[VGX_HANDLES_MAX];
};

/* tests/protocol drops each of the dispatcher's checks in turn. */
#ifndef VGX_GUARD
#define VGX_GUARD(condition) (condition)
#define VGX_OPERATIONS const
#endif

/* Start a thread of the session; `run` gets its executor_thread and ends with vgx_thread_end. */
bool vgx_thread_start(struct vgx_session *s, void *(*run)(void *), struct vgx_ring *ring,
                      void (*answer)(struct executor_thread *, const struct vgw_header *, const struct vgx_reply *));
void vgx_thread_end(struct executor_thread *t);
/* zeroed memory whose pages are allocated when they are written; NULL: out of memory */
void *vgx_buffer_map(size_t nbytes);

/* Report an error at the next blocking call. False: an earlier one is still to be reported. */
bool vgx_defer(struct vgx_session *s, CUresult result);

/* Set or clear a bit of `notice` (VGW_NOTICE_*) in all rings. */
void vgx_notice(struct vgx_session *s, uint32_t bit, bool on);

extern VGX_OPERATIONS struct vgx_operation vgx_operations[VGW_OP_COUNT];

/* End the session because of what the peer sent. Callers return the result, which has no other meaning. */
CUresult vgx_violation(struct vgx_session *s, const char *what);
void vgx_end(struct vgx_session *s, enum vgx_reason reason, const char *text);

void vgx_log(struct vgx_session *s, int level, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The address for a variable result; `fixed_nbytes` is the size of the fixed results before it. */
void *vgx_reply_part(struct vgx_reply *out, uint64_t nbytes, uint64_t fixed_nbytes);
void vgx_reply_finish(struct vgx_reply *out, const void *fixed, uint64_t fixed_nbytes, uint64_t part_nbytes);

/* Copy a text and end it; false when it is too long or holds a NUL. */
bool vgx_text(char *to, const char *from, uint64_t nbytes);

/* A descriptor received with this record, or -1. Called on the thread that holds `reading`. */
int vgx_pop_fd(struct vgx_session *s);

void vgx_callbacks_wake(struct vgx_session *s);

#endif
