/* The client's side of every CUDA object, one struct each. See vgs_handle.h for how they are found and how long they
 * live. */
#ifndef VGS_OBJECTS_H
#define VGS_OBJECTS_H

#include "vgs_handle.h"
#include "vgs_inventory.h"
#include "vgs_work.h"
#include "vgw_cuda.h"
#include "vgw_wire.h"
#include <pthread.h>

/* One entry of a context's storage for NVIDIA's libraries (private table CLS). */
struct vgs_cls_entry {
  void *key, *value;
  void (*destroy)(CUcontext context, void *key, void *value);
  struct vgs_cls_entry *next;
};

struct vgs_context {
  struct vgs_object object;
  CUdevice device;
  const int32_t *attributes; /* of the device */
  bool primary;
  int active;           /* atomic; a primary context that is not active keeps its handle */
  uint32_t wire_id;     /* its id on the wire; a primary context gets a new one when it is retained again */
  uint32_t profiled_id; /* atomic; the wire_id that was last reported to a profiler */
  uint32_t flags;
  uint32_t users; /* cuCtxAttach */
  uint64_t unique_id;
  int cache_config;
  uint32_t per_thread_stream_flags;
  uint32_t limits_known; /* bits; this and the limits under the lock of vgs_limit.c */
  size_t limits[VGS_LIMIT_MAX];
  CUgreenCtx green;              /* the green context that it stands for; NULL: none */
  struct vgs_coredump *coredump; /* under the lock of vgs_coredump.c */
  struct vgs_cls_entry *cls;     /* under the CLS lock of vgs_context.c */
};

/* A green context, and the context that stands for it once the program has asked for one. */
struct vgs_green {
  struct vgs_object object;
  CUdevice device;
  CUcontext context;
};

struct vgs_stream {
  struct vgs_object object;
  CUgreenCtx green; /* that it was created in; NULL: none */
  uint32_t flags;
  int priority;
  uint64_t unique_id;
  CUdevice device;
  CUcontext context; /* a primary context keeps this handle in its next life: compare object.context_id */
  /* Atomic members: while several threads use a stream or event, one of them may begin a capture there. */
  _Atomic uint64_t capture; /* id of the capture it belongs or belonged to: vgs_capture_status */
  _Atomic bool capture_origin;
};

struct vgs_event {
  struct vgs_object object;
  uint32_t flags;
  int recorded;             /* atomic */
  int of_graph;             /* atomic; a graph's node records it */
  _Atomic uint64_t capture; /* of the stream it was last recorded in */
  _Atomic uint32_t stream;  /* id of that stream */
  uint64_t entry;           /* atomic; that stream's entry when the event was recorded (vgs_order.h), 0: unknown */
};

/* An interprocess event: the worker has its state. */
struct vgs_ipc_event {
  struct vgs_object object;
};

struct vgs_module {
  struct vgs_object object;
  uint32_t library_id; /* of cuLibraryGetModule, else 0 */
};

struct vgs_library {
  struct vgs_object object;
  const void *pending; /* the program's image, not uploaded yet (lazy loading, preserved binary); under load_lock */
  uint64_t pending_nbytes;
  CUresult loaded; /* result of the load; meaningful when nothing is pending */
  char *reason;    /* why the load failed, if a request for a kernel caused it; under load_lock */
};

/* A module's function or a library's kernel: the same thing to launch. */
struct vgs_kernel {
  struct vgs_object object;
  uint32_t owner_id; /* module or library */
  char *name;
  CUresult missing;   /* why the image cannot run on this simulated device: the worker has no such kernel; 0: it can */
  char *reason;       /* `missing` in words; NULL: not known */
  uint64_t described; /* atomic; a bit for each row that has the device's own attributes. 0: params are not valid */
  int launched;       /* atomic; a launch has succeeded, so the image is known to be loadable: later ones are queued */
  /* Atomic. INT32_MIN: INVALID_VALUE. A library's kernel has a row for each device, a function has one row. */
  int (*attributes)[VGW_FUNC_ATTRIBUTE_COUNT];
  uint32_t param_count, param_nbytes;
  struct vgw_param *params;
};

struct vgs_pool {
  struct vgs_object object;
  CUdevice device;
  bool imported; /* from another process: it cannot allocate, and `device` is not known */
};

struct vgs_graph {
  struct vgs_object object;
  CUgraphNode *nodes; /* handles of all its nodes, in the order they were added */
  uint32_t count, capacity;
  bool growing;           /* a capture adds nodes to it */
  bool unnamed;           /* its nodes have no handles yet: a captured graph, a clone, or a graph inside a node */
  CUgraph owner;          /* the graph whose node it lies in; NULL: none */
  struct vgs_works works; /* the outermost graph also keeps the works of the graphs inside it */
};

struct vgs_graph_exec {
  struct vgs_object object;
  struct vgs_works works;
  CUstream last; /* stream of the last launch */
  bool launched; /* it has been launched, and keeps works */
};

/* A copy of memory that the worker does not reach is a child graph of two halves in the worker. */
enum vgs_copy_form { VGS_COPY_OF_UNKNOWN_FORM, VGS_COPY_IN_PLACE, VGS_COPY_IN_HALVES };

struct vgs_graph_node {
  struct vgs_object object;
  CUgraph graph;                     /* the graph that the node belongs to */
  CUgraph inside;                    /* the graph inside a child graph's node; NULL: not asked for yet */
  enum vgs_copy_form form;           /* of a copy node */
  CUDA_KERNEL_NODE_PARAMS_v2 params; /* of a kernel node, for GetParams: they point at `pointers` and `block` */
  void **pointers;                   /* NULL: not known here */
  char *block;
  CUDA_MEMCPY3D *copy; /* of a copy node, as the program gave it; NULL: not known here */
  CUgraph *bodies;     /* of a conditional node */
  uint32_t body_count;
};

/* Physical memory of cuMemCreate. */
struct vgs_allocation {
  struct vgs_object object; /* lives while a handle or a mapping does */
  uint32_t handles;         /* cuMemCreate and cuMemRetainAllocationHandle less cuMemRelease */
  uint32_t mappings;        /* both under the lock of vgs_virtual.c */
  CUmemAllocationProp prop;
};

struct vgs_array {
  struct vgs_object object;
  CUDA_ARRAY3D_DESCRIPTOR desc;
  bool is_level; /* of a mipmapped array, which destroys it */
};

struct vgs_mipmap {
  struct vgs_object object;
  CUDA_ARRAY3D_DESCRIPTOR desc;
  uint32_t level_count; /* as requested; the array may have fewer */
};

struct vgs_link_input {
  void *data;
  uint64_t nbytes;
  struct vgs_link_input *next;
};

struct vgs_link {
  struct vgs_object object;
  struct vgs_link_input *inputs, **last;
  void *image;
  uint64_t image_nbytes;
  unsigned option_count; /* of cuLinkCreate: for the logs */
  const int *options;
  void **option_values;
  void *log_nbytes[2]; /* what the sizes of the info and the error log were at cuLinkCreate */
};

/* By kind, for vgs_object_set_types. */
extern const struct vgs_object_type vgs_object_types[VGW_KIND_COUNT];

#endif
