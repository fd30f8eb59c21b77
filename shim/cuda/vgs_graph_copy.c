/* Copy nodes. If the worker cannot reach a copy's memory, the worker's node is a child graph: a host function of this
 * process and the device's part of the copy (vgs_work.h). Queries still show a copy node. */
#include "vgs_graph_copy.h"
#include "vgs_api.h"
#include "vgs_enter.h"
#include "vgs_graph.h"
#include "vgs_graph_node.h"
#include "vgs_graph_part.h"
#include "vgs_graph_replace.h"
#include "vgs_work_copy.h"
#include <stdlib.h>

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

CUresult vgs_graph_copy_found(uint32_t callback, CUDA_MEMCPY3D *copy) {
  if (callback)
    return vgs_work_copy_params(callback, copy) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  return find_array(copy->srcMemoryType, &copy->srcArray) && find_array(copy->dstMemoryType, &copy->dstArray)
             ? CUDA_SUCCESS
             : CUDA_ERROR_UNKNOWN;
}

/* Find out the form of a captured or cloned node. */
static CUresult know_form(struct vgs_graph_node *node) {
  CUDA_MEMCPY3D params;
  uint32_t callback;
  if (node->form)
    return CUDA_SUCCESS;
  CUresult result = vgs_send_cuGraphMemcpyNodeGetParams(node->object.id, &params, &callback);
  if (!result)
    node->form = callback ? VGS_COPY_IN_HALVES : VGS_COPY_IN_PLACE;
  return result;
}

CUresult vgs_cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                  size_t numDependencies, const CUDA_MEMCPY3D *copyParams, CUcontext ctx) {
  struct vgs_copy_in_place copy;
  struct vgs_captured_copy other;
  struct vgs_graph_adding a;
  struct vgs_works none = {0};
  uint32_t context;
  bool in_place;
  CUresult result = vgs_graph_context_id(ctx, &context);
  if (result || (result = vgs_copy_resolve(copyParams, &in_place, &copy, &other)) ||
      (result = vgs_graph_adding_begin(&a, phGraphNode, hGraph, dependencies, numDependencies)))
    return result;
  uint32_t graph = a.graph->object.id, node = a.node->object.id;
  vgs_graph_copy_set(a.node, copyParams);
  a.node->form = in_place ? VGS_COPY_IN_PLACE : VGS_COPY_IN_HALVES;
  if (in_place)
    return vgs_graph_adding_end(
        &a, phGraphNode,
        vgs_send_cuGraphAddMemcpyNode(node, graph, context, VGS_COPY_SENT(copy), a.dependencies, a.count));
  VGS_COPY_HALVES halves;
  result = vgs_copy_halves_init(&halves, context, &other);
  if (!result && !vgs_works_add(&vgs_graph_outermost(a.graph)->works, halves.work, node, &none))
    result = CUDA_ERROR_OUT_OF_MEMORY;
  if (!result)
    result = vgs_send_cuGraphAddChildGraphNode(node, graph, a.dependencies, a.count, halves.graph->id);
  return vgs_graph_adding_end(&a, phGraphNode, result);
}

/* What a node's new parameters need. A copy that could be made in place is made in halves if the node has them, unless
 * both sides are the device's. *changes: the node's form does not fit. */
static CUresult resolve_in_form(struct vgs_graph_node *node, const CUDA_MEMCPY3D *params,
                                struct vgs_copy_in_place *copy, struct vgs_captured_copy *other, bool *changes) {
  bool in_place;
  CUresult result = vgs_copy_resolve(params, &in_place, copy, other);
  if (!result)
    result = know_form(node);
  *changes = node->form == VGS_COPY_IN_PLACE
                 ? !in_place
                 : other->dst.place == VGS_PLACE_DEVICE && other->src.place == VGS_PLACE_DEVICE;
  return result;
}

/* A node's graph may be one that has been destroyed meanwhile. */
static CUresult set_halves(struct vgs_graph_node *node, const struct vgs_captured_copy *copy) {
  VGS_WORK *work = NULL;
  struct vgs_copy_in_place device;
  struct vgs_graph *graph = vgs_graph_find(node->graph);
  if (!graph)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = vgs_copy_halves_work(copy, &work, &device);
  if (!result)
    result = vgs_send_vgpuGraphSetHalves(node->object.id, vgs_work_id(work), copy->src.place == VGS_PLACE_DEVICE,
                                         VGS_COPY_SENT(device));
  return result ? result : vgs_graph_set_work(node, &work);
}

/* The worker's node is a copy, and is to be a child graph of two halves, or the other way round. */
static CUresult replace(struct vgs_graph_node *node, const CUDA_MEMCPY3D *params) {
  CUgraphNode fresh;
  CUresult result = vgs_graph_may_replace(node);
  if (!result)
    result = vgs_cuGraphAddMemcpyNode(&fresh, node->graph, NULL, 0, params, NULL);
  return result ? result : vgs_graph_replace(node, fresh);
}

CUresult vgs_cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D *nodeParams) {
  struct vgs_copy_in_place copy;
  struct vgs_captured_copy other;
  bool changes;
  struct vgs_graph_node *node = vgs_graph_node_find(hNode);
  CUresult result = node ? resolve_in_form(node, nodeParams, &copy, &other, &changes) : CUDA_ERROR_INVALID_VALUE;
  if (!result && changes)
    return replace(node, nodeParams);
  if (!result && node->form == VGS_COPY_IN_HALVES) {
    result = set_halves(node, &other);
    if (result == CUDA_ERROR_INVALID_VALUE) /* a copy within the program's memory has one half, others have two */
      return replace(node, nodeParams);
  } else if (!result) {
    result = vgs_send_cuGraphMemcpyNodeSetParams(node->object.id, VGS_COPY_SENT(copy));
  }
  if (!result)
    vgs_graph_copy_set(node, nodeParams);
  return result;
}

/* A copy that needs a host function keeps its direction: the form of its child graph cannot change. */
static CUresult exec_set_halves(struct vgs_graph_exec *exec, struct vgs_graph_node *node, uint32_t context,
                                const struct vgs_captured_copy *copy) {
  VGS_COPY_HALVES halves;
  CUresult result = vgs_copy_halves_init(&halves, context, copy);
  if (!result)
    result = vgs_send_cuGraphExecChildGraphNodeSetParams(exec->object.id, node->object.id, halves.graph->id);
  if (result == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)
    result = CUDA_ERROR_INVALID_VALUE; /* a copy in another direction */
  return result ? result : vgs_graph_exec_set_work(exec, node, &halves.work);
}

CUresult vgs_cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_MEMCPY3D *copyParams,
                                            CUcontext ctx) {
  struct vgs_copy_in_place copy;
  struct vgs_captured_copy other;
  uint32_t context;
  bool changes;
  struct vgs_graph_exec *exec = vgs_graph_exec_find(hGraphExec);
  struct vgs_graph_node *node = vgs_graph_node_find(hNode);
  CUresult result = exec && node ? vgs_graph_context_id(ctx, &context) : CUDA_ERROR_INVALID_VALUE;
  if (!result)
    result = resolve_in_form(node, copyParams, &copy, &other, &changes);
  if (result || changes) /* the manual: INVALID_VALUE if the memory is of another kind */
    return result ? result : CUDA_ERROR_INVALID_VALUE;
  return node->form == VGS_COPY_IN_HALVES
             ? exec_set_halves(exec, node, context, &other)
             : vgs_send_cuGraphExecMemcpyNodeSetParams(exec->object.id, node->object.id, context, VGS_COPY_SENT(copy));
}
