/* Work of the device as the worker measures it, for profilers: what vgpuActivityTake returns. */
#ifndef VGW_ACTIVITY_H
#define VGW_ACTIVITY_H

#include <stdint.h>

/* EVENT: an event was recorded, at `start_ns`. */
enum vgw_activity_kind {
  VGW_ACTIVITY_KERNEL = 1,
  VGW_ACTIVITY_COPY,
  VGW_ACTIVITY_FILL,
  VGW_ACTIVITY_GRAPH,
  VGW_ACTIVITY_EVENT,
};

/* What vgpuActivityStart requests, and what it returns. NODES: the work of each node of a graph's launch; without it, a
 * launch as a whole. EVENTS: recorded events. Kernels, copies and fills are always measured. */
enum { VGW_MEASURE_NODES = 1, VGW_MEASURE_EVENTS = 2, VGW_MEASURE_ALL = 3 };

/* The memory at an end of a copy. The worker reports it for copies of graphs, whose ends the client does not know. */
enum vgw_activity_memory { VGW_ACTIVITY_UNKNOWN, VGW_ACTIVITY_HOST, VGW_ACTIVITY_DEVICE };

struct vgw_activity {
  uint64_t correlation; /* of the record that submitted it */
  uint64_t start_ns;    /* the worker's CLOCK_MONOTONIC, as are all times here */
  uint64_t end_ns;
  uint64_t nbytes;     /* copies and fills */
  uint64_t graph_node; /* work of a graph: the node's number in its worker; else 0 */
  uint32_t kind;       /* vgw_activity_kind; GRAPH: a whole launch, whose nodes could not be measured */
  uint32_t name;       /* kernels: for vgpuActivityName; 0: none */
  uint32_t grid[3], block[3];
  uint32_t shared_static_nbytes, shared_dynamic_nbytes, local_nbytes; /* local: for each thread */
  uint32_t registers;                                                 /* of a thread */
  uint32_t of_graph;                                                  /* 1: work of a graph's launch */
  uint32_t value;                                                     /* fills */
  uint8_t source, destination;                                        /* copies; vgw_activity_memory */
  uint8_t unused[6];
};

_Static_assert(sizeof(struct vgw_activity) == 104, "layout");

/* A worker keeps at most this many until they are taken; further ones are only counted. */
#define VGW_ACTIVITIES_MAX (1u << 19)
#define VGW_ACTIVITY_NAME_NBYTES 4096 /* the longest name, its NUL included */

#endif
