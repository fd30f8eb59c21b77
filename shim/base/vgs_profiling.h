/* What libcuda offers to a profiler in the process, which is vgpu's libcupti of the same build (shim/cupti): to see
 * every exported call, and to take what the worker measures. `vgpuProfiling` hands it out.
 *
 * Cost while nobody observes: one relaxed load in each exported call. */
#ifndef VGS_PROFILING_H
#define VGS_PROFILING_H

#include "vgw_activity.h"
#include "vgw_cuda.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { VGS_PROFILING_VERSION = 3 };

/* Numbers of CUPTI's callback domains. */
enum vgs_api_domain { VGS_API_DRIVER = 1, VGS_API_RUNTIME = 2 };

/* One exported call being observed; lies on its stack. */
struct vgs_api_call {
  uint32_t domain, id; /* id: CUPTI's callback id */
  const char *name;
  const void *params; /* the arguments, laid out as CUPTI's struct of the function */
  void *stream;       /* the call's stream argument; NULL if it has none */
  /* Of a driver call: where it returns to, and the end of its stack frame, below which the return address lies. */
  const void *caller;
  const char *frame;
  bool stacked; /* it allocates, frees or launches: vgs_host_stack.h */
  /* The members below belong to the observer. */
  uint32_t correlation; /* 0: not observed */
  uint32_t outer;       /* the thread's correlation before this call */
  uint64_t start;       /* in the profiler's clock */
  uint64_t data;        /* the subscriber's value, kept from enter to leave */
  bool measured;        /* by the worker */
  uint32_t runtime;     /* callback id of the runtime call that made this driver call; 0: not known */
  void *kept;           /* malloc'ed: of a call that frees, what it frees */
};

struct vgs_observer {
  void (*enter)(struct vgs_api_call *call);
  void (*leave)(struct vgs_api_call *call, int result);
};

enum vgs_profiled_memory { VGS_MEMORY_PAGEABLE, VGS_MEMORY_PINNED, VGS_MEMORY_DEVICE, VGS_MEMORY_MANAGED };

struct vgs_memory_facts {
  uint64_t base, nbytes;
  enum vgs_profiled_memory kind;
  uint32_t context, device;
  bool of_pool;
};

struct vgs_pool_facts {
  uint64_t threshold, reserved_nbytes, used_nbytes;
  uint32_t device;
  bool imported; /* from another process: only this is known */
};

struct vgs_context_facts {
  uint32_t id, device;
};

struct vgs_profiling {
  uint32_t version;
  /* For another library whose calls are observed, such as the runtime: whether there is an observer (atomic), and its
   * functions to call before and after each call. */
  const int *observed;
  void (*enter)(struct vgs_api_call *call);
  void (*leave)(struct vgs_api_call *call, int result);
  /* Set the observer that is shown each exported call; NULL: none. The observer must stay valid for ever, because a
   * call may still be returning. False: there is another observer. */
  bool (*observe)(const struct vgs_observer *observer, const struct vgs_observer *instead_of);
  /* The number that the calling thread's records carry from now on; 0: none. */
  void (*correlate)(uint64_t correlation);
  /* Start or stop measuring, in the worker, the device work of correlated records. NOT_INITIALIZED: no worker yet;
   * NOT_SUPPORTED: the host cannot measure. *what: VGW_MEASURE_* bits; in: wanted, out: measured. */
  CUresult (*measure)(bool on, unsigned *what);
  CUresult (*clock)(uint64_t *now_ns, uint64_t *dropped, uint64_t *waiting);
  CUresult (*take)(struct vgw_activity *activities, size_t capacity, size_t *count);
  CUresult (*name)(uint32_t name, char text[VGW_ACTIVITY_NAME_NBYTES]);
  uint32_t (*epoch)(void); /* changes after a lost session: the worker's name ids then have new meanings */
  CUcontext (*current)(void);
  bool (*context)(CUcontext context, struct vgs_context_facts *facts); /* NULL: the current one */
  bool (*is_new)(CUcontext context); /* true at the first call since the context was created */
  bool (*stream_id)(CUcontext context, CUstream stream, bool per_thread, uint32_t *id);
  bool (*is_capturing)(CUstream stream, bool per_thread);
  uint32_t (*object_id)(const void *handle);           /* of an event, a graph: unique among its kind */
  uint64_t (*node_number)(CUgraphNode node);           /* as in the worker's records, if they contain it */
  CUgraphNode *(*nodes)(CUgraph graph, size_t *count); /* malloc'ed; NULL: none, or they are unknown */
  uint32_t (*node_type)(CUgraphNode node);
  const char *(*kernel_name)(void *function); /* never NULL */
  /* The range of memory that holds an address. False: memory that CUDA does not know, thus pageable. */
  bool (*memory)(uint64_t address, struct vgs_memory_facts *facts);
  CUmemoryPool (*current_pool)(uint32_t device); /* NULL: not known */
  bool (*pool)(CUmemoryPool pool, struct vgs_pool_facts *facts);
};

/* Exported by libcuda: its table, or NULL if it is of another version. */
const struct vgs_profiling *vgpuProfiling(uint32_t version);

/* Read by the exported functions. */
extern __attribute__((visibility("hidden"))) int vgs_profiling_state; /* atomic; 1: there is an observer */
void vgs_profiling_enter(struct vgs_api_call *call);
void vgs_profiling_leave(struct vgs_api_call *call, int result);

/* Set the observer for while no profiler observes. Called once. */
void vgs_profiling_otherwise(const struct vgs_observer *observer);
/* As the member `correlate`. */
void vgs_profiling_correlate(uint64_t correlation);

#endif
