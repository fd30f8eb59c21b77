/* Executable graphs, shared by the files that launch and update them.
 *
 * A launch holds the plan that it began with: a plan that a launch may hold never changes, and an update creates a new
 * one. Locking: the runtime lock guards an executable graph's members and a plan's references. */
#ifndef VGX_SIM_GRAPH_EXEC_H
#define VGX_SIM_GRAPH_EXEC_H

#include "vgx_sim_graph.h"

/* A child graph's steps follow its node's, and so do those of a conditional node's graphs, each after a step that says
 * how many they are. */
#define VGX_SIM_STEP_BODY (1u << 16) /* the type of such a step */

struct vgx_sim_step {
  uint64_t serial; /* of the node */
  uint64_t place;  /* a hash of the steps of its graph that it depends on */
  uint32_t type;
  uint32_t inside;           /* number of steps in its child graphs */
  uint32_t slot;             /* of a step for an event: its index among such steps */
  bool disabled;             /* cuGraphNodeSetEnabled: launches pass over it */
  struct vgx_sim_work *work; /* NULL: nothing to do */
};

struct vgx_sim_plan {
  uint32_t refs;
  uint32_t count;
  uint32_t slots; /* number of steps for events */
  struct vgx_sim_step steps[];
};

struct CUgraphExec_st {
  uint32_t magic;
  CUcontext ctx;
  uint64_t flags; /* as it was instantiated */
  struct vgx_sim_plan *plan;
  struct vgx_sim_marker *last; /* the last launch's end; NULL: none yet */
};

static inline bool vgx_sim_is_exec(CUgraphExec exec) { return exec && exec->magic == VGX_SIM_GRAPH_EXEC; }

/* Whether the work of a step is for another context than `ctx`. */
static inline bool vgx_sim_is_foreign(const struct vgx_sim_step *step, CUcontext ctx) {
  return step->work && step->work->ctx && step->work->ctx != ctx;
}

/* The nodes of a graph in an order their dependencies allow; INVALID_VALUE: a cycle. `made` must be NULL before; the
 * caller frees it, also after a failure. Runtime lock held. */
CUresult vgx_sim_plan_create_locked(CUgraph graph, struct vgx_sim_plan **made);
void vgx_sim_plan_unref(struct vgx_sim_plan *plan); /* no lock held */

#endif
