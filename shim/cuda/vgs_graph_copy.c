/* Copy nodes. If the worker cannot reach a copy's memory, the worker's node is a child graph: a host function of this
 * process and the device's part of the copy (vgs_work.h). Queries still show a copy node. */
#include "vgs_graph_copy.h"
#include "vgs_api.h"
#include "vgs_enter.h"
#include "vgs_graph.h"
#include "vgs_graph_node.h"
#include "vgs_graph_part.h"
#include "vgs_log.h"
#include "vgs_work_copy.h"
#include <stdlib.h>

#define COPY(c, ctx)                                                                                                   \
  ctx, (c).dst, (c).dst_pitch, (c).dst_rows, (c).src, (c).src_pitch, (c).src_rows, (c).width, (c).height, (c).depth

/* Make a graph of the host function and the device's copy, in the copy's direction, without an owner yet. */
static CUresult make_halves(uint32_t context, uint32_t callback, const struct vgs_copy_in_place *device, bool to_host,
                            struct vgs_object **made) {
  struct vgs_object *graph = vgs_object_create(VGW_KIND_GRAPH, 0);
  uint32_t ours = vgs_object_reserve_id(VGW_KIND_GRAPH_NODE), theirs = vgs_object_reserve_id(VGW_KIND_GRAPH_NODE);
  CUresult result = graph && ours && theirs ? vgs_send_cuGraphCreate(graph->id, 0) : CUDA_ERROR_OUT_OF_MEMORY;
  if (result) {
    if (graph)
      vgs_object_destroy(graph);
    return result;
  }
  bool after = device->width && to_host;
  if (after)
    result = vgs_send_cuGraphAddMemcpyNode(theirs, graph->id, COPY(*device, context), NULL, 0);
  if (!result)
    result = vgs_send_cuGraphAddHostNode(ours, graph->id, callback, &theirs, after);
  if (!result && device->width && !to_host)
    result = vgs_send_cuGraphAddMemcpyNode(theirs, graph->id, COPY(*device, context), &ours, 1);
  *made = graph;
  return result;
}

static void drop_halves(struct vgs_object *graph) {
  uint32_t id = graph->id;
  vgs_object_destroy(graph);
  vgs_send_cuGraphDestroy(id, false);
}

/* Make the node's work, and the graph of its two halves; the caller must destroy both. */
static CUresult prepare(uint32_t context, const struct vgs_captured_copy *copy, struct vgs_work **work,
                        struct vgs_object **halves) {
  struct vgs_copy_in_place device;
  *halves = NULL;
  CUresult result = vgs_work_copy(copy, work, &device);
  if (result) {
    *work = NULL;
    return result;
  }
  return make_halves(context, vgs_work_id(*work), &device, copy->src.place == VGS_PLACE_DEVICE, halves);
}

static void drop(struct vgs_work *work, struct vgs_object *halves) {
  if (halves)
    drop_halves(halves);
  if (work)
    vgs_work_unref(work);
}

void vgs_graph_copy_set(struct vgs_graph_node *node, const CUDA_MEMCPY3D *params) {
  if (!node->copy)
    node->copy = malloc(sizeof *node->copy);
  if (node->copy) /* out of memory: the node is correct, but its parameters cannot be returned */
    *node->copy = *params;
}

static bool find_array(CUmemorytype type, CUarray *array) {
  void *object = type == CU_MEMORYTYPE_ARRAY ? vgs_object_at(VGW_KIND_ARRAY, (uint32_t)(uintptr_t)*array) : NULL;
  if (object)
    *array = vgs_object_handle(object);
  return object || type != CU_MEMORYTYPE_ARRAY;
}

CUresult vgs_copy_find_arrays(CUDA_MEMCPY3D *copy) {
  return find_array(copy->srcMemoryType, &copy->srcArray) && find_array(copy->dstMemoryType, &copy->dstArray)
             ? CUDA_SUCCESS
             : CUDA_ERROR_UNKNOWN;
}

CUresult vgs_graph_copy_resolve(const struct vgs_graph_node *node, const CUDA_MEMCPY3D *params,
                                struct vgs_copy_in_place *copy) {
  static bool named;
  struct vgs_captured_copy other;
  bool in_place;
  CUresult result = vgs_copy_resolve(params, &in_place, copy, &other);
  if (!result && (!in_place || node->in_halves))
    result = vgs_unimplemented("other parameters for a copy node of memory that the worker does not share", &named);
  return result;
}

CUresult vgs_cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                  size_t numDependencies, const CUDA_MEMCPY3D *copyParams, CUcontext ctx) {
  struct vgs_copy_in_place copy;
  struct vgs_captured_copy other;
  struct vgs_graph_adding a;
  struct vgs_work *work;
  struct vgs_object *halves;
  struct vgs_works none = {0};
  uint32_t context;
  bool in_place;
  CUresult result = vgs_graph_context_id(ctx, &context);
  if (result || (result = vgs_copy_resolve(copyParams, &in_place, &copy, &other)) ||
      (result = vgs_graph_adding_begin(&a, phGraphNode, hGraph, dependencies, numDependencies)))
    return result;
  uint32_t graph = a.graph->object.id, node = a.node->object.id;
  vgs_graph_copy_set(a.node, copyParams);
  if (in_place)
    return vgs_graph_adding_end(
        &a, phGraphNode, vgs_send_cuGraphAddMemcpyNode(node, graph, COPY(copy, context), a.dependencies, a.count));
  result = prepare(context, &other, &work, &halves);
  if (!result && !vgs_works_add(&vgs_graph_outermost(a.graph)->works, work, node, &none))
    result = CUDA_ERROR_OUT_OF_MEMORY;
  if (!result)
    result = vgs_send_cuGraphAddChildGraphNode(node, graph, a.dependencies, a.count, halves->id);
  if (!result)
    a.node->in_halves = true;
  drop(work, halves);
  return vgs_graph_adding_end(&a, phGraphNode, result);
}

/* A copy that needs a host function keeps its direction: the form of its child graph cannot change. */
static CUresult change_halves(struct vgs_graph_exec *exec, struct vgs_graph_node *node, uint32_t context,
                              const struct vgs_captured_copy *copy) {
  struct vgs_work *work;
  struct vgs_object *halves;
  struct vgs_works old = {0};
  CUresult result = prepare(context, copy, &work, &halves);
  if (!result)
    result = vgs_send_cuGraphExecChildGraphNodeSetParams(exec->object.id, node->object.id, halves->id);
  if (result == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)
    result = CUDA_ERROR_INVALID_VALUE; /* a copy in another direction */
  if (!result && !vgs_works_add(&exec->works, work, node->object.id, &old)) {
    result = CUDA_ERROR_OUT_OF_MEMORY; /* keep the work: the worker's node refers to it */
    work = NULL;
  }
  drop(work, halves);
  vgs_graph_exec_clear_works(exec, &old);
  return result;
}

CUresult vgs_cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_MEMCPY3D *copyParams,
                                            CUcontext ctx) {
  static bool named;
  struct vgs_copy_in_place copy;
  struct vgs_captured_copy other;
  uint32_t context;
  bool in_place;
  struct vgs_graph_exec *exec = vgs_graph_exec_find(hGraphExec);
  struct vgs_graph_node *node = vgs_graph_node_find(hNode);
  CUresult result = exec && node ? vgs_graph_context_id(ctx, &context) : CUDA_ERROR_INVALID_VALUE;
  if (!result)
    result = vgs_copy_resolve(copyParams, &in_place, &copy, &other);
  if (result)
    return result;
  if (in_place != node->in_halves)
    return in_place ? vgs_send_cuGraphExecMemcpyNodeSetParams(exec->object.id, node->object.id, COPY(copy, context))
                    : change_halves(exec, node, context, &other);
  return vgs_unimplemented("a copy node that changes between memory that is shared with the worker and that is not",
                           &named);
}
