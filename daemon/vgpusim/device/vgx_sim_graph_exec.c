/* Executable graphs: instantiation and launches. A launch is one operation of its stream, which does the nodes' work
 * one after another in an order that their dependencies allow.
 *
 * Locking: the runtime lock. It is held until a launch is queued, so that launches of one graph are queued in the order
 * in which they wait for each other. */
#include <stdlib.h>
#include <string.h>

#include "vgx_sim_graph_exec.h"

#include "vgx_sim_activity.h"
#include "vgx_sim_capture.h"
#include "vgx_sim_graph.h"
#include "vgx_sim_graph_condition.h"
#include "vgx_sim_graph_event.h"
#include "vgx_sim_graph_memory.h"
#include "vgx_sim_launch.h"
#include "vgx_sim_marker.h"
#include "vgx_sim_queue.h"
#include "vgx_sim_runtime.h"

enum { FLAG_AUTO_FREE = 1, FLAG_DEVICE_LAUNCH = 4, FLAG_NODE_PRIORITY = 8 };

struct run {
  struct vgx_sim_op op;
  struct vgx_sim_plan *plan;
  struct vgx_sim_marker **markers; /* of the events that it records and waits for */
};

void vgx_sim_plan_unref(struct vgx_sim_plan *plan) {
  vgx_sim_lock();
  bool last = --plan->refs == 0;
  vgx_sim_unlock();
  if (!last)
    return;
  for (uint32_t i = 0; i < plan->count; i++)
    vgx_sim_work_unref(plan->steps[i].work);
  free(plan);
}

/* A hash of a node's dependencies and their data that does not depend on their order; `at` gives each node's step. */
static uint64_t place_of(CUgraphNode node, const uint32_t *at) {
  uint64_t sum = node->dependency_count;
  for (uint32_t k = 0; k < node->dependency_count; k++) {
    uint64_t data;
    memcpy(&data, &node->edges[k], sizeof data);
    uint64_t x = ((uint64_t)at[node->dependencies[k]] ^ data << 32) + 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    sum += x ^ x >> 31;
  }
  return sum;
}

static CUresult put_graph(struct vgx_sim_plan *plan, CUgraph graph);

static CUresult put_step(struct vgx_sim_plan *plan, CUgraphNode node, uint32_t *at, uint32_t first) {
  if (node->work)
    node->work->refs++;
  at[node->index] = plan->count - first + 1;
  struct vgx_sim_step *step = &plan->steps[plan->count++];
  *step = (struct vgx_sim_step){
      .serial = node->serial, .place = place_of(node, at), .type = node->type, .work = node->work};
  if (vgx_sim_step_is_event(step))
    step->slot = plan->slots++;
  CUresult result = node->child ? put_graph(plan, node->child) : CUDA_SUCCESS;
  for (uint32_t i = 0; i < node->body_count && result == CUDA_SUCCESS; i++) {
    struct vgx_sim_step *body = &plan->steps[plan->count++];
    *body = (struct vgx_sim_step){.place = i, .type = VGX_SIM_STEP_BODY};
    result = put_graph(plan, node->bodies[i]);
    body->inside = (uint32_t)(&plan->steps[plan->count] - body) - 1;
  }
  step->inside = (uint32_t)(&plan->steps[plan->count] - step) - 1;
  return result;
}

/* The nodes of a graph in an order that their dependencies allow, as added where possible; INVALID_VALUE: a cycle. */
static CUresult put_graph(struct vgx_sim_plan *plan, CUgraph graph) {
  uint32_t *at = calloc(graph->count + 1, sizeof *at); /* each node's step, from 1; 0: none yet */
  if (!at)
    return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = CUDA_SUCCESS;
  uint32_t first = plan->count, left = graph->count;
  for (uint32_t before = UINT32_MAX; left && left != before && result == CUDA_SUCCESS;) {
    before = left;
    for (uint32_t i = 0; i < graph->count && result == CUDA_SUCCESS; i++) {
      CUgraphNode node = graph->nodes[i];
      bool ready = !at[i];
      for (uint32_t k = 0; ready && k < node->dependency_count; k++)
        ready = at[node->dependencies[k]] != 0;
      if (ready) {
        result = put_step(plan, node, at, first);
        left--;
      }
    }
  }
  free(at);
  return result != CUDA_SUCCESS ? result : left ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult vgx_sim_plan_create_locked(CUgraph graph, struct vgx_sim_plan **made) {
  uint64_t count = vgx_sim_graph_count(graph);
  struct vgx_sim_plan *plan =
      count <= VGX_SIM_GRAPH_NODES_MAX ? malloc(sizeof *plan + count * sizeof plan->steps[0]) : NULL;
  if (!plan)
    return CUDA_ERROR_OUT_OF_MEMORY;
  *plan = (struct vgx_sim_plan){.refs = 1};
  *made = plan;
  return put_graph(plan, graph);
}

CUresult vgx_sim_cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags) {
  CUcontext ctx;
  CUresult result = vgx_sim_enter(&ctx);
  if (result != CUDA_SUCCESS)
    return result;
  if (!phGraphExec || !hGraph || hGraph->magic != VGX_SIM_GRAPH)
    return CUDA_ERROR_INVALID_VALUE;
  if (flags & FLAG_DEVICE_LAUNCH)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (flags & ~(unsigned long long)(FLAG_AUTO_FREE | FLAG_NODE_PRIORITY))
    return CUDA_ERROR_INVALID_VALUE;
  CUgraphExec exec = calloc(1, sizeof *exec);
  if (!exec)
    return CUDA_ERROR_OUT_OF_MEMORY;
  exec->magic = VGX_SIM_GRAPH_EXEC;
  exec->ctx = ctx;
  exec->flags = flags;
  vgx_sim_lock();
  result = hGraph->moved ? CUDA_ERROR_INVALID_VALUE : vgx_sim_plan_create_locked(hGraph, &exec->plan);
  for (uint32_t i = 0; exec->plan && i < exec->plan->count; i++)
    if (vgx_sim_is_foreign(&exec->plan->steps[i], ctx) && result == CUDA_SUCCESS)
      result = CUDA_ERROR_NOT_SUPPORTED; /* work of several contexts */
  vgx_sim_unlock();
  if (result == CUDA_SUCCESS) {
    *phGraphExec = exec;
    return result;
  }
  if (exec->plan)
    vgx_sim_plan_unref(exec->plan);
  free(exec);
  return result;
}

CUresult vgx_sim_cuGraphExecGetFlags(CUgraphExec hGraphExec, uint64_t *flags) {
  if (!vgx_sim_is_exec(hGraphExec) || !flags)
    return CUDA_ERROR_INVALID_VALUE;
  *flags = hGraphExec->flags;
  return CUDA_SUCCESS;
}

CUresult vgx_sim_cuGraphExecDestroy(CUgraphExec hGraphExec) {
  if (!vgx_sim_is_exec(hGraphExec))
    return CUDA_ERROR_INVALID_VALUE;
  hGraphExec->magic = VGX_SIM_DEAD;
  vgx_sim_plan_unref(hGraphExec->plan); /* launches that are queued hold it too */
  vgx_sim_lock();
  if (hGraphExec->last)
    vgx_sim_marker_unref_locked(hGraphExec->last);
  vgx_sim_unlock();
  free(hGraphExec);
  return CUDA_SUCCESS;
}

/* Run `count` steps of a launch. */
static CUresult run_steps(const struct run *run, const struct vgx_sim_step *step, uint32_t count);

/* The graph that a conditional node runs next; NULL: none, or no further one. */
static const struct vgx_sim_step *chosen(const struct vgx_sim_step *node) {
  uint32_t number = vgx_sim_condition_body(node->work->op);
  const struct vgx_sim_step *body = node + 1;
  for (; body <= node + node->inside && number > 0; number--)
    body += body->inside + 1;
  return body <= node + node->inside ? body : NULL;
}

static CUresult run_conditional(const struct run *run, const struct vgx_sim_step *node) {
  CUresult result = CUDA_SUCCESS;
  const struct vgx_sim_step *body;
  while (result == CUDA_SUCCESS && (body = chosen(node))) {
    result = run_steps(run, body + 1, body->inside);
    if (!vgx_sim_condition_repeats(node->work->op))
      break;
  }
  return result;
}

static CUresult run_steps(const struct run *run, const struct vgx_sim_step *step, uint32_t count) {
  CUresult result = CUDA_SUCCESS;
  uint64_t correlation = run->op.describe ? 0 : run->op.correlation; /* 0: nodes are not measured */
  for (const struct vgx_sim_step *end = step + count; result == CUDA_SUCCESS && step < end; step++)
    if (step->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
      result = run_conditional(run, step);
      step += step->inside;
    } else if (vgx_sim_step_is_event(step)) {
      vgx_sim_graph_event_run(step, run->markers);
    } else if (step->disabled) {
      continue;
    } else if (step->work && correlation) {
      result = vgx_sim_run_node(step->work->op, correlation, step->serial);
    } else if (step->work) {
      result = step->work->op->run(step->work->op);
    }
  return result;
}

static CUresult run_plan(struct vgx_sim_op *op) {
  const struct run *run = (struct run *)op;
  const struct vgx_sim_plan *plan = run->plan;
  for (uint32_t i = 0; i < plan->count; i++)
    if (plan->steps[i].type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
      vgx_sim_condition_begin(plan->steps[i].work->op);
  return run_steps(run, plan->steps, plan->count);
}

/* Describe a launch that is measured as a whole. */
static void describe_run(const struct vgx_sim_op *op, struct vgw_activity *activity, const char **name) {
  (void)op, (void)name;
  activity->kind = VGW_ACTIVITY_GRAPH;
  activity->of_graph = 1;
}

static void destroy_run(struct vgx_sim_op *op) {
  struct run *run = (struct run *)op;
  vgx_sim_graph_events_end(run->plan, run->markers);
  vgx_sim_plan_unref(run->plan);
  free(run);
}

/* Pin the modules of all steps; false: one is unloaded, and nothing is pinned. */
static bool pin_locked(const struct vgx_sim_plan *plan) {
  for (uint32_t i = 0; i < plan->count; i++)
    if (plan->steps[i].work && !vgx_sim_launch_pin_locked(plan->steps[i].work->op, 1)) {
      while (i-- > 0)
        if (plan->steps[i].work)
          vgx_sim_launch_pin_locked(plan->steps[i].work->op, -1);
      return false;
    }
  return true;
}

static void unpin_locked(const struct vgx_sim_plan *plan) {
  for (uint32_t i = 0; i < plan->count; i++)
    if (plan->steps[i].work)
      vgx_sim_launch_pin_locked(plan->steps[i].work->op, -1);
}

/* Queue a run of `plan`. Its modules stay loaded until the run: unloading waits for queued work. */
static CUresult submit(CUgraphExec exec, CUstream stream) {
  struct run *run = calloc(1, sizeof *run);
  struct vgx_sim_marker *end = vgx_sim_marker_create(false);
  if (!run || !end) {
    free(run);
    free(end);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  vgx_sim_lock();
  struct vgx_sim_plan *plan = exec->plan;
  CUresult result = vgx_sim_graph_memory_launch_locked(plan, exec->flags & FLAG_AUTO_FREE);
  if (result == CUDA_SUCCESS && !pin_locked(plan))
    result = CUDA_ERROR_INVALID_HANDLE;
  else if (result == CUDA_SUCCESS && !(run->markers = vgx_sim_graph_events_locked(plan, &result)) && result)
    unpin_locked(plan);
  if (result != CUDA_SUCCESS) {
    vgx_sim_unlock();
    free(run);
    free(end);
    return result;
  }
  plan->refs += 2; /* one reference for the run, one for this call */
  run->plan = plan;
  run->op = (struct vgx_sim_op){.run = run_plan,
                                .destroy = destroy_run,
                                .wait = exec->last,
                                .record = end,
                                .describe = vgx_sim_measures(VGW_MEASURE_NODES) ? NULL : describe_run};
  end->refs++;
  exec->last = end;
  result = vgx_sim_submit_unlock(stream, &run->op, VGX_SIM_QUEUE);
  vgx_sim_lock();
  unpin_locked(plan);
  vgx_sim_unlock();
  vgx_sim_plan_unref(plan);
  return result;
}

/* The stream to launch `exec` on. */
static CUresult check(CUgraphExec exec, CUstream handle, CUstream *stream) {
  CUresult result = vgx_sim_enter_stream(handle, NULL, stream);
  if (result == CUDA_SUCCESS && !vgx_sim_is_exec(exec))
    result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS && (*stream)->ctx != exec->ctx)
    result = CUDA_ERROR_NOT_SUPPORTED;
  return result;
}

/* In a capturing stream a launch becomes a child graph: one node after the other, as they would run. */
static CUresult capture(CUgraphExec exec, CUstream stream, bool *captured) {
  CUgraph child = NULL;
  CUgraphNode node;
  CUresult result = CUDA_SUCCESS;
  vgx_sim_lock();
  *captured = vgx_sim_is_capturing_locked(stream);
  if (*captured) {
    const struct vgx_sim_plan *plan = exec->plan;
    child = vgx_sim_graph_create();
    result = child ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < plan->count && result == CUDA_SUCCESS; i++) {
      const struct vgx_sim_step *step = &plan->steps[i];
      if (step->type == VGX_SIM_NODE_GRAPH)
        continue; /* its steps follow */
      struct vgx_sim_work *work = step->disabled ? NULL : step->work;
      uint32_t type = step->disabled ? VGX_SIM_NODE_EMPTY : step->type;
      if (step->type >= CU_GRAPH_NODE_TYPE_MEM_ALLOC && step->type != CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) {
        result = vgx_sim_capture_lost_locked(stream, CUDA_ERROR_NOT_SUPPORTED);
        break;
      }
      uint32_t before = child->count ? child->count - 1 : 0;
      result = vgx_sim_graph_add_locked(child, type, work, &before, child->count ? 1 : 0, &node);
      if (result == CUDA_SUCCESS && work)
        work->refs++;
    }
    if (result == CUDA_SUCCESS)
      result = vgx_sim_capture_child_locked(stream, child);
  }
  vgx_sim_unlock();
  if (result != CUDA_SUCCESS)
    vgx_sim_graph_destroy(child);
  return result;
}

CUresult vgx_sim_cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream) {
  CUstream stream;
  bool captured = false;
  CUresult result = check(hGraphExec, hStream, &stream);
  if (result == CUDA_SUCCESS)
    result = capture(hGraphExec, stream, &captured);
  return result != CUDA_SUCCESS || captured ? result : submit(hGraphExec, stream);
}

/* Nothing to upload: memory is shared. */
CUresult vgx_sim_cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream) {
  CUstream stream;
  return check(hGraphExec, hStream, &stream);
}
