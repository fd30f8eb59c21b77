/* What the simulator's files share: objects, the runtime lock, the queue.
 *
 * Locking. One runtime lock guards every object's state: contexts, streams, markers, modules. It is never held while a
 * copy, a kernel, a host function or a hook runs. Leaf locks (arena, pool, output, heap) may be taken under it, never
 * the other way.
 *
 * Lifetime. An object a client destroys is freed when its work is done. When a whole context goes, its objects become
 * tombstones (dead magic, memory kept until the process exits), so that a late call on one is answered instead of
 * reading freed memory. */
#ifndef VGX_SIM_INTERNAL_H
#define VGX_SIM_INTERNAL_H

#include <pthread.h>

#include "vgw_enums.h"
#include "vgx_sim.h"
#include "vgx_sim_arena.h"
#include "vgx_sim_driver.h"

enum vgx_sim_attribute { /* CUdevice_attribute, those the C half reads */
                         VGX_SIM_MAX_THREADS_PER_BLOCK = CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                         VGX_SIM_MAX_BLOCK_DIM_X = CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X,
                         VGX_SIM_MAX_GRID_DIM_X = CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X,
                         VGX_SIM_SHARED_PER_BLOCK = CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK,
                         VGX_SIM_WARP_SIZE = CU_DEVICE_ATTRIBUTE_WARP_SIZE,
                         VGX_SIM_MAX_PITCH = CU_DEVICE_ATTRIBUTE_MAX_PITCH,
                         VGX_SIM_SM_COUNT = CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                         VGX_SIM_MAX_THREADS_PER_SM = CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
                         VGX_SIM_CC_MAJOR = CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                         VGX_SIM_CC_MINOR = CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                         VGX_SIM_SHARED_PER_SM = CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
                         VGX_SIM_REGISTERS_PER_SM = CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR,
                         VGX_SIM_COOPERATIVE_LAUNCH = CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH,
                         VGX_SIM_CLUSTER_LAUNCH = CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH,
                         VGX_SIM_SHARED_PER_BLOCK_OPTIN = CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
                         VGX_SIM_MAX_BLOCKS_PER_SM = CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR,
                         VGX_SIM_RESERVED_SHARED_PER_BLOCK = CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK,
};

enum vgx_sim_magic {
  VGX_SIM_DEAD = 0,
  VGX_SIM_STREAM = 0x5354524d,
  VGX_SIM_EVENT = 0x45564e54,
  VGX_SIM_MODULE = 0x4d4f4455,
  VGX_SIM_FUNCTION = 0x46554e43,
  VGX_SIM_LIBRARY = 0x4c494252,
  VGX_SIM_KERNEL = 0x4b45524e,
  VGX_SIM_POOL = 0x504f4f4c,
  VGX_SIM_GRAPH = 0x47525048,
  VGX_SIM_GRAPH_NODE = 0x4e4f4445,
  VGX_SIM_GRAPH_EXEC = 0x45584543,
  VGX_SIM_ARRAY = 0x41525259,
  VGX_SIM_MIPMAP = 0x4d49504d,
  VGX_SIM_TEXTURE = 0x54455854,
};

struct CUmemPoolHandle_st {
  uint32_t magic;
  struct vgx_sim_device *device;
  bool is_default, destroyed; /* a destroyed pool is freed with its last allocation */
  uint64_t release_threshold, max_nbytes;
  uint64_t used_nbytes, used_high_nbytes, reserved_high_nbytes;
  int32_t reuse_event, reuse_opportunistic, reuse_internal;
  uint64_t readers, writers; /* peers, a bit for each device (vgx_sim_peer.c) */
};

struct vgx_sim_device {
  bool configured;
  uint32_t index;
  struct vgx_sim_device_properties properties;
  struct vgx_sim_arena arena;
  CUcontext primary;
  uint32_t primary_refs, primary_flags;
  CUresult sticky; /* after a fault no new context is given out, as on the real driver */
  struct CUmemPoolHandle_st default_pool;
  CUmemoryPool pool;
};

/* A point in a stream's order that others wait for. */
struct vgx_sim_marker {
  uint32_t refs;
  bool done, timed;
  uint64_t time_ns; /* CLOCK_MONOTONIC at completion */
};

/* What an operation is in a graph: the CUgraphNodeType plus one. */
enum vgx_sim_op_kind {
  VGX_SIM_OP_ONCE, /* it cannot be run again: not for graphs */
  VGX_SIM_OP_KERNEL,
  VGX_SIM_OP_MEMCPY,
  VGX_SIM_OP_MEMSET,
  VGX_SIM_OP_HOST,
};

/* A stream's or event's part in a capture (vgx_sim_capture.c). */
struct vgx_sim_captured {
  struct vgx_sim_capture *capture; /* NULL: none */
  uint32_t *frontier, count;       /* the nodes that what follows depends on */
  CUgraphNode *told;               /* what cuStreamGetCaptureInfo has answered last */
};

/* One piece of work in a stream. Embedded first in the struct of its kind. */
struct vgx_sim_op {
  struct vgx_sim_op *next;
  uint64_t ticket;
  enum vgx_sim_op_kind kind;
  CUresult (*run)(struct vgx_sim_op *); /* no lock held; NULL: nothing to do */
  void (*drop)(struct vgx_sim_op *);    /* frees it, run or cancelled; no lock held; NULL: it is its submitter's */
  /* It starts after `wait` and `after` and completes `record`; each reference is its own. The queue sets `after`. */
  struct vgx_sim_marker *wait, *after, *record;
  bool holds_back; /* what is submitted to non-blocking streams later starts after `record` */
  bool done;
  CUresult result;
};

struct CUstream_st {
  uint32_t magic;
  uint32_t flags;
  int32_t priority, policy;
  char window[32]; /* attributes, as the program gives them (vgx_sim_stream_attribute.c) */
  CUcontext ctx;
  struct vgx_sim_op *head, *tail;
  bool busy; /* an operation of this stream is running */
  uint64_t busy_ticket;
  enum vgx_sim_op_kind busy_kind;
  bool destroyed;
  uint32_t waiters;
  struct vgx_sim_captured captured;
  bool active; /* in the runtime's list of streams with work */
  struct CUstream_st *active_next, *active_previous;
  struct CUstream_st *next; /* in its context */
};

struct CUevent_st {
  uint32_t magic;
  uint32_t flags;
  CUcontext ctx;
  struct vgx_sim_marker *marker;    /* of the last record; NULL: never recorded */
  struct vgx_sim_captured captured; /* when the last record was in a capture */
  struct CUevent_st *next;
};

/* What kernels printed, oldest first (vgx_sim_output.c). */
struct vgx_sim_output {
  struct vgx_sim_message *first, *last;
  uint64_t nbytes;
};

struct vgx_sim_heap; /* vgx_sim_heap.c */

struct CUctx_st {
  struct vgx_sim_device *device;
  bool destroyed, ending, primary;
  uint32_t flags;
  uint64_t peers;  /* a bit for each device whose memory it has asked to reach (vgx_sim_peer.c) */
  CUresult sticky; /* 700-719: every later call answers it */
  uint64_t limits[VGX_SIM_LIMITS_MAX];
  struct CUstream_st legacy, per_thread;
  struct vgx_sim_marker *copied; /* the last synchronous copy that was queued: non-blocking streams start after it */
  struct CUstream_st *streams;
  struct CUevent_st *events;
  CUmodule modules;
  struct vgx_sim_output output; /* under its own lock */
  struct vgx_sim_heap *heap;
  CUcontext next;
};

/* --- runtime (vgx_sim_context.c) --- */
extern pthread_mutex_t vgx_sim_runtime_lock;
extern const struct vgx_sim_hooks *vgx_sim_hooks;

static inline void vgx_sim_lock(void) { pthread_mutex_lock(&vgx_sim_runtime_lock); }
static inline void vgx_sim_unlock(void) { pthread_mutex_unlock(&vgx_sim_runtime_lock); }

/* The calling thread's context, if it can be used: else INVALID_CONTEXT, CONTEXT_IS_DESTROYED or its sticky error. */
CUresult vgx_sim_enter(CUcontext *ctx);
CUcontext vgx_sim_current(void); /* NULL: none; unchecked */
/* The same for a given context. */
CUresult vgx_sim_check(CUcontext ctx);
/* NULL when `device` is not configured. */
struct vgx_sim_device *vgx_sim_device_at(CUdevice device);
/* The device whose address space holds `address`, or NULL. */
struct vgx_sim_device *vgx_sim_device_of(uint64_t address);
CUcontext vgx_sim_contexts(void); /* all, under the runtime lock */
int64_t vgx_sim_attribute(const struct vgx_sim_device *device, enum vgx_sim_attribute id, int64_t otherwise);

/* --- queue (vgx_sim_queue.c) --- */
enum vgx_sim_submit_mode {
  VGX_SIM_QUEUE, /* return at once; the queue's threads run it */
  VGX_SIM_TRY,   /* run it on this thread if its turn is now, else do nothing and answer NOT_READY */
  VGX_SIM_WAIT,  /* run it on this thread if its turn is now, else queue it and sleep until it is done */
};
/* QUEUE takes ownership of `op`, which must have a `drop`; with TRY and WAIT the caller keeps it, it has none, and its
 * result is returned. Returns the context's sticky error if it has one. */
CUresult vgx_sim_submit(CUstream stream, struct vgx_sim_op *op, enum vgx_sim_submit_mode mode);
/* The stream a handle means in `ctx`; INVALID_HANDLE when it is none. */
CUresult vgx_sim_stream_of(CUcontext ctx, CUstream handle, CUstream *stream);
/* Wait for what was submitted before the call: to a stream (the legacy one: to every blocking stream) or to a context.
 */
CUresult vgx_sim_wait_stream(CUstream stream);
CUresult vgx_sim_wait_context(CUcontext ctx);
bool vgx_sim_stream_idle_locked(CUstream stream);
void vgx_sim_wait_progress_locked(void); /* sleep until something completes */
void vgx_sim_notify_locked(void);        /* something completed */
/* Between these no device memory is used or changed by any stream. False, and nothing is paused: something ran on and
 * on. */
bool vgx_sim_pause(uint32_t timeout_s);
void vgx_sim_resume(void);
/* Free the stream once it has no work, waiters or use (runtime lock held). */
void vgx_sim_stream_release_locked(CUstream stream);

/* --- streams and events (vgx_sim_stream.c) --- */
void vgx_sim_stream_init(CUstream stream, CUcontext ctx, uint32_t flags, int32_t priority);
struct vgx_sim_marker *vgx_sim_marker_create(bool timed);
void vgx_sim_marker_unref_locked(struct vgx_sim_marker *marker);

/* --- capture (vgx_sim_capture.c) --- */
bool vgx_sim_is_capturing_locked(CUstream stream);
/* Make `op` a node of the stream's capture, which takes it over when it succeeds. */
CUresult vgx_sim_capture_locked(CUstream stream, struct vgx_sim_op *op);
/* What a capture does not allow was asked of a capturing stream: the capture is lost; `result` comes back. */
CUresult vgx_sim_capture_lost_locked(CUstream stream, CUresult result);
/* The same if the stream is capturing at all, else 0; no lock held. */
CUresult vgx_sim_capture_forbid(CUstream stream, CUresult result);
/* An event is recorded in a capturing stream; a stream is to wait for an event (*handled: by its capture). */
CUresult vgx_sim_capture_record_locked(CUstream stream, CUevent event);
CUresult vgx_sim_capture_wait_locked(CUstream stream, CUevent event, bool *handled);
/* CAPTURED_EVENT if the event was last recorded in an active capture: whether it is done is not defined. */
CUresult vgx_sim_capture_event_locked(CUevent event);
void vgx_sim_captured_clear_locked(struct vgx_sim_captured *captured);

/* --- copies (vgx_sim_copy.c) --- */
struct vgx_sim_box {
  uint8_t *dst;
  const uint8_t *src;
  uint64_t dst_pitch, dst_slice, src_pitch, src_slice; /* bytes from row to row, from plane to plane */
  uint64_t width, height, depth;                       /* bytes, rows, planes */
};
/* Order a copy whose ranges are checked into `stream`, and return when the source may be changed (asynchronous calls:
 * unless it is registered) and, if the destination is host memory (asynchronous calls: unless it is registered), when
 * it is done. */
CUresult vgx_sim_submit_box(CUstream stream, const struct vgx_sim_box *box, bool synchronous);

/* --- memory --- */
/* Whether [address, address + nbytes) lies in one allocation of one device, or in registered host memory. */
bool vgx_sim_is_device_range(uint64_t address, uint64_t nbytes);
bool vgx_sim_is_registered(uint64_t address, uint64_t nbytes);
/* A pool's allocation is gone (runtime lock held). */
void vgx_sim_pool_released_locked(CUmemoryPool pool, uint64_t nbytes);
void vgx_sim_pool_init(CUmemoryPool pool, struct vgx_sim_device *device);

/* --- modules (vgx_sim_module.c) --- */
/* Unload every module of a context that is being destroyed; no lock held. */
void vgx_sim_unload_modules(CUcontext ctx);

/* --- output (vgx_sim_output.c) --- */
/* Append a message, at most as long as the context's printf limit; the oldest ones make room. */
void vgx_sim_output_append(CUcontext ctx, const char *text, uint64_t nbytes);
/* Device printf as the vprintf ABI passes it; runs on a kernel's thread and may leave it if the arguments fault. */
int32_t vgx_sim_output_format(CUcontext ctx, const char *format, const uint8_t *args);

/* --- device heap (vgx_sim_heap.c) --- */
void *vgx_sim_heap_allocate(CUcontext ctx, uint64_t nbytes);
bool vgx_sim_heap_free(CUcontext ctx, void *pointer); /* false: not a live block */
void vgx_sim_heap_destroy(struct vgx_sim_heap *heap);

/* --- log --- */
void vgx_sim_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Make `result` the context's sticky error, and drop the work it was given. Runtime lock not held. */
void vgx_sim_fail_context(CUcontext ctx, CUresult result);

/* A line for the log and for the client: why a call failed with `result`, or (`ends`) what ended the context. */
void vgx_sim_reason(CUresult result, bool ends, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
