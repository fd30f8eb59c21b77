/* Measuring operations for a profiler: when each began and ended on this machine's processors. */
#ifndef VGX_SIM_ACTIVITY_H
#define VGX_SIM_ACTIVITY_H

#include "vgx_sim_internal.h"

/* The function that receives records from now on; NULL: nothing is measured. *what: bits VGW_MEASURE_*. */
CUresult vgx_sim_measure(void (*put)(const struct vgw_activity *activity, const char *name), unsigned *what);

/* Whether all of `what` (bits VGW_MEASURE_*) is measured now. */
bool vgx_sim_measures(unsigned what);

/* The calling thread's submissions belong to this call of the program; 0: to none. */
void vgx_sim_correlate(uint64_t correlation);
uint64_t vgx_sim_correlation(void); /* the calling thread's number; 0 while nothing is measured */

/* The host call stack of the call that the calling thread executes (VGW_HOST_STACK); 0: unknown. */
uint64_t vgx_sim_host_stack(void);
/* Run an operation whose `host_stack` is set. No lock held. */
CUresult vgx_sim_run_for_stack(struct vgx_sim_op *op);

/* Run an operation whose `correlation` is set, and put its record. No lock held. */
CUresult vgx_sim_run_measured(struct vgx_sim_op *op);

/* The same for a graph's node, whose operation other launches may be running at the same time. */
CUresult vgx_sim_run_node(struct vgx_sim_op *op, uint64_t correlation, uint64_t node);

#endif
