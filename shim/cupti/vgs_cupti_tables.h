/* Generated tables of facts: CUPTI's callback ids and results. */
#ifndef VGS_CUPTI_TABLES_H
#define VGS_CUPTI_TABLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a driver function does, as far as records show it. */
enum vgs_cupti_class {
  VGS_CALL_OTHER,
  VGS_CALL_LAUNCH,
  VGS_CALL_LAUNCH_EX, /* its stream is in its configuration */
  VGS_CALL_GRAPH,
  VGS_CALL_COPY, /* a copy whose ends only the worker knows */
  VGS_CALL_COPY_TO_DEVICE,
  VGS_CALL_COPY_TO_HOST,
  VGS_CALL_COPY_EITHER,
  VGS_CALL_COPY_PEER,
  VGS_CALL_FILL,
  VGS_CALL_RECORD_EVENT,
  VGS_CALL_ALLOCATE,
  VGS_CALL_FREE,
  VGS_CALL_POOL_CREATE,
  VGS_CALL_POOL_DESTROY,
  VGS_CALL_POOL_TRIM,
  VGS_CALL_SYNC_STREAM,
  VGS_CALL_SYNC_CONTEXT,
  VGS_CALL_SYNC_EVENT,
  VGS_CALL_WAIT_EVENT,
};

struct vgs_cupti_function {
  const char *name; /* NULL: there is none */
  enum vgs_cupti_class what;
  bool per_thread; /* its default stream is the thread's own */
  bool async;
};

struct vgs_cupti_result_name {
  int result;
  const char *name;
};

extern const struct vgs_cupti_function vgs_cupti_drivers[]; /* by callback id */
extern const size_t vgs_cupti_drivers_count;
/* A function of the runtime. The driver calls of the classes [first, last] that it makes are one for each of its calls;
 * VGS_CALL_OTHER: it makes other ones. */
struct vgs_cupti_runtime {
  const char *name; /* ends with _v and the release; NULL: there is none */
  enum vgs_cupti_class first, last;
};

extern const struct vgs_cupti_runtime vgs_cupti_runtimes[]; /* by callback id */
extern const size_t vgs_cupti_runtimes_count;
extern const struct vgs_cupti_result_name vgs_cupti_results[];
extern const size_t vgs_cupti_result_count;

#endif
