/* Measuring operations. Locking: none; `put` is set while operations run, and has its own lock. */
#include "vgx_sim_activity.h"
#include "vgw_clock.h"
#include "vgw_wire.h"

static void (*put_activity)(const struct vgw_activity *activity, const char *name); /* atomic */
static unsigned measured;                                                           /* atomic; VGW_MEASURE_* */
static _Thread_local uint64_t thread_correlation;

CUresult vgx_sim_measure(void (*put)(const struct vgw_activity *activity, const char *name), unsigned *what) {
  __atomic_store_n(&measured, *what, __ATOMIC_RELAXED);
  __atomic_store_n(&put_activity, put, __ATOMIC_RELEASE);
  return CUDA_SUCCESS;
}

bool vgx_sim_measures(unsigned what) { return (__atomic_load_n(&measured, __ATOMIC_RELAXED) & what) == what; }

void vgx_sim_correlate(uint64_t correlation) { thread_correlation = correlation; }

uint64_t vgx_sim_correlation(void) {
  bool measures = __atomic_load_n(&put_activity, __ATOMIC_RELAXED) && !(thread_correlation & VGW_HOST_STACK);
  return measures ? thread_correlation : 0;
}

uint64_t vgx_sim_host_stack(void) { return thread_correlation & VGW_HOST_STACK ? thread_correlation : 0; }

CUresult vgx_sim_run_for_stack(struct vgx_sim_op *op) {
  uint64_t before = thread_correlation;
  thread_correlation = op->host_stack;
  CUresult result = op->run(op);
  thread_correlation = before;
  return result;
}

static CUresult run(struct vgx_sim_op *op, struct vgw_activity *activity) {
  void (*put)(const struct vgw_activity *, const char *) = __atomic_load_n(&put_activity, __ATOMIC_ACQUIRE);
  if (!put || !op->describe)
    return op->run(op);
  const char *name = NULL;
  op->describe(op, activity, &name);
  activity->start_ns = vgw_now_ns();
  CUresult result = op->run(op);
  activity->end_ns = vgw_now_ns();
  if (result == CUDA_SUCCESS)
    put(activity, name);
  return result;
}

CUresult vgx_sim_run_measured(struct vgx_sim_op *op) {
  return run(op, &(struct vgw_activity){.correlation = op->correlation});
}

CUresult vgx_sim_run_node(struct vgx_sim_op *op, uint64_t correlation, uint64_t node) {
  return run(op, &(struct vgw_activity){.correlation = correlation, .graph_node = node, .of_graph = 1});
}
