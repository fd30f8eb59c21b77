/* The simulator's objects, shared by its files.
 *
 * The driver's functions have the real driver's signatures (vgx_sim_table.h, generated), and its results: those of an
 * H100 with driver 580. The current context is the calling thread's. Out-parameters are written only on success.
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

#include "vgw_activity.h"
#include "vgw_enums.h"
#include "vgx_sim.h"
#include "vgx_sim_arena.h"
#include "vgx_sim_table.h"

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
                         VGX_SIM_MAX_PERSISTING_L2 = CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE,
                         VGX_SIM_MAX_ACCESS_POLICY_WINDOW = CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE,
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
  VGX_SIM_GREEN = 0x4752454e,
  VGX_SIM_RESOURCE_DESC = 0x44455343,
};

struct CUmemPoolHandle_st {
  uint32_t magic;
  struct vgx_sim_device *device;
  bool is_default, destroyed; /* a destroyed pool is freed with its last allocation */
  bool shared, imported;      /* with other processes; another process's pool, which cannot allocate here */
  uint64_t release_threshold, max_nbytes;
  uint64_t used_nbytes, used_high_nbytes, reserved_high_nbytes;
  int32_t reuse_event, reuse_opportunistic, reuse_internal;
  uint64_t readers, writers; /* peers, a bit for each device (vgx_sim_peer.c) */
};

struct vgx_sim_device {
  bool configured;
  uint32_t index;
  uint32_t host_number; /* the device's index on the host; a process may have only some of the host's devices */
  struct vgx_sim_device_properties properties;
  struct vgx_sim_arena arena;
  CUcontext primary;
  uint32_t primary_refs, primary_flags;
  CUresult sticky; /* after a fault no new context is created, as on the real driver */
  struct CUmemPoolHandle_st default_pool;
  CUmemoryPool pool;
};

/* A position in a stream that other streams wait for. */
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
  VGX_SIM_OP_EVENT_WAIT = 7,
  VGX_SIM_OP_EVENT_RECORD,
  VGX_SIM_OP_MEM_ALLOC = 11,
  VGX_SIM_OP_MEM_FREE,
  VGX_SIM_OP_WORDS,
};

/* A stream's or event's part in a capture (vgx_sim_capture.c). */
struct vgx_sim_captured {
  struct vgx_sim_capture *capture; /* NULL: none */
  uint32_t *frontier, count;       /* the nodes that the next one will depend on */
  CUgraphEdgeData *edges;          /* data of the edges from them */
  CUgraphNode *told;               /* what cuStreamGetCaptureInfo has answered last */
};

/* One piece of work in a stream. Embedded first in the struct of its kind. */
struct vgx_sim_op {
  struct vgx_sim_op *next;
  uint64_t ticket;
  enum vgx_sim_op_kind kind;
  CUresult (*run)(struct vgx_sim_op *); /* no lock held; NULL: nothing to do */
  void (*destroy)(struct vgx_sim_op *); /* frees the operation after it has run or was cancelled; no lock held; NULL:
                                           the submitter owns it */
  /* Starts after `wait`, `after` and `hold`, completes `record`; owns a reference to each. The queue sets `after` and
   * `hold`. */
  struct vgx_sim_marker *wait, *after, *hold, *record;
  CUgreenCtx green; /* whose multiprocessors it uses; NULL: all. The queue sets it */
  bool gathers;     /* starts after all that was submitted to its context before, or to its green context */
  /* For a profiler (vgx_sim_activity.h): describe the operation; NULL: it is not measured. */
  void (*describe)(const struct vgx_sim_op *, struct vgw_activity *, const char **name);
  uint64_t correlation; /* of the call that submitted it; 0: it is not measured */
  uint64_t host_stack;  /* of that call, for the sanitizer; 0: unknown */
  bool holds_back;      /* what is submitted to non-blocking streams later starts after `record` */
  bool done;
  CUresult result;
};

struct CUstream_st {
  uint32_t magic;
  uint32_t flags;
  int32_t priority, policy;
  char window[32]; /* attributes, as the program gives them (vgx_sim_stream_attribute.c) */
  CUcontext ctx;
  CUgreenCtx green; /* NULL: none */
  struct vgx_sim_op *head, *tail;
  bool busy;  /* an operation of this stream is running */
  bool waits; /* that operation waits for a word, and uses no other memory meanwhile */
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
  uint32_t refs; /* the program's, and those of graphs' nodes */
  CUcontext ctx;
  struct vgx_sim_marker *marker;    /* of the last record; NULL: never recorded */
  struct vgx_sim_captured captured; /* when the last record was in a capture */
  struct CUevent_st *next;
};

/* How a launch's kernel runs. The first two are its attributes. */
struct vgx_sim_launch_form {
  bool cooperative;
  uint32_t cluster[3]; /* the dimensions that the launch asks for; zeros: none */
  struct vgx_sim_followed followed;
  CUgreenCtx green; /* of the stream; NULL: none */
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
  uint32_t loading; /* modules being loaded: their variables' memory must not be freed meanwhile */
  uint64_t peers;   /* a bit for each device whose memory it has asked to reach (vgx_sim_peer.c) */
  CUresult sticky;  /* 700-719: every later call answers it */
  uint64_t limits[VGX_SIM_LIMITS_MAX];
  struct CUstream_st legacy, per_thread;
  CUgreenCtx green;              /* the green context whose handle this struct is; NULL: a context of its own */
  CUgreenCtx greens;             /* the green contexts that have it as their primary context */
  struct CUstream_st hub;        /* internal: records and waits of the whole context are queued here */
  struct vgx_sim_marker *held;   /* work that is submitted later starts after this; NULL: after nothing */
  struct vgx_sim_marker *copied; /* the last synchronous copy that was queued: non-blocking streams start after it */
  struct CUstream_st *streams;
  struct CUevent_st *events;
  CUmodule modules;
  struct vgx_sim_output output; /* under its own lock */
  struct vgx_sim_heap *heap;
  CUcontext next;
};

#endif
