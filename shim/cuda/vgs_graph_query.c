/* Nodes of any type by one function, edges with data, and a graph in words. */
#define _GNU_SOURCE
#include "vgs_api.h"
#include "vgs_graph.h"
#include "vgs_graph_node.h"
#include "vgs_kernel.h"
#include "vgs_log.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODE_KERNEL, NODE_MEMCPY, NODE_MEMSET, NODE_HOST, NODE_GRAPH, NODE_EMPTY, NODE_WAIT_EVENT, NODE_EVENT_RECORD };

static CUresult unknown_type(int type) {
  static bool named;
  enum { TYPES = 14 }; /* CU_GRAPH_NODE_TYPE_CONDITIONAL is the last */
  return type < 0 || type >= TYPES ? CUDA_ERROR_INVALID_VALUE : vgs_unimplemented("a graph node of this type", &named);
}

CUresult vgs_cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                               const CUgraphEdgeData *dependencyData, size_t numDependencies,
                               CUgraphNodeParams *nodeParams) {
  CUresult result = nodeParams ? vgs_graph_check_edges(dependencyData, numDependencies) : CUDA_ERROR_INVALID_VALUE;
  if (result)
    return result;
  CUgraphNodeParams *p = nodeParams;
  switch (p->type) {
  case NODE_KERNEL:
    return vgs_cuGraphAddKernelNode_v2(phGraphNode, hGraph, dependencies, numDependencies, &p->kernel);
  case NODE_MEMCPY:
    return vgs_cuGraphAddMemcpyNode(phGraphNode, hGraph, dependencies, numDependencies, &p->memcpy.copyParams,
                                    p->memcpy.copyCtx);
  case NODE_MEMSET:
    return vgs_cuGraphAddMemsetNode(phGraphNode, hGraph, dependencies, numDependencies, &p->memset.fill, p->memset.ctx);
  case NODE_HOST:
    return vgs_cuGraphAddHostNode(phGraphNode, hGraph, dependencies, numDependencies, &p->host);
  case NODE_GRAPH:
    if (p->graph.ownership) /* moved: the handle is the parent's from then on */
      return unknown_type(NODE_GRAPH);
    result = vgs_cuGraphAddChildGraphNode(phGraphNode, hGraph, dependencies, numDependencies, p->graph.graph);
    return result ? result : vgs_cuGraphChildGraphNodeGetGraph(*phGraphNode, &p->graph.graph);
  case NODE_EMPTY:
    return vgs_cuGraphAddEmptyNode(phGraphNode, hGraph, dependencies, numDependencies);
  case NODE_WAIT_EVENT:
    return vgs_cuGraphAddEventWaitNode(phGraphNode, hGraph, dependencies, numDependencies, p->event);
  case NODE_EVENT_RECORD:
    return vgs_cuGraphAddEventRecordNode(phGraphNode, hGraph, dependencies, numDependencies, p->event);
  default:
    return unknown_type(p->type);
  }
}

CUresult vgs_cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                            size_t numDependencies, CUgraphNodeParams *nodeParams) {
  return vgs_cuGraphAddNode_v2(phGraphNode, hGraph, dependencies, NULL, numDependencies, nodeParams);
}

CUresult vgs_cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams *nodeParams) {
  CUgraphNodeParams *p = nodeParams;
  if (!p)
    return CUDA_ERROR_INVALID_VALUE;
  switch (p->type) {
  case NODE_KERNEL:
    return vgs_cuGraphKernelNodeSetParams_v2(hNode, &p->kernel);
  case NODE_MEMSET:
    return vgs_cuGraphMemsetNodeSetParams(hNode, &p->memset.fill);
  case NODE_HOST:
    return vgs_cuGraphHostNodeSetParams(hNode, &p->host);
  default:
    return unknown_type(p->type);
  }
}

CUresult vgs_cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams *nodeParams) {
  CUgraphNodeParams *p = nodeParams;
  if (!p)
    return CUDA_ERROR_INVALID_VALUE;
  switch (p->type) {
  case NODE_KERNEL:
    return vgs_cuGraphExecKernelNodeSetParams_v2(hGraphExec, hNode, &p->kernel);
  case NODE_MEMCPY:
    return vgs_cuGraphExecMemcpyNodeSetParams(hGraphExec, hNode, &p->memcpy.copyParams, p->memcpy.copyCtx);
  case NODE_MEMSET:
    return vgs_cuGraphExecMemsetNodeSetParams(hGraphExec, hNode, &p->memset.fill, p->memset.ctx);
  case NODE_HOST:
    return vgs_cuGraphExecHostNodeSetParams(hGraphExec, hNode, &p->host);
  case NODE_GRAPH:
    return vgs_cuGraphExecChildGraphNodeSetParams(hGraphExec, hNode, p->graph.graph);
  default:
    return unknown_type(p->type);
  }
}

/* --- edges: no other data can be there than 0 --- */

static void clear(CUgraphEdgeData *data, const void *asked, size_t room, CUresult result) {
  if (!result && data && asked)
    memset(data, 0, room * sizeof *data);
}

CUresult vgs_cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edgeData,
                                size_t *numEdges) {
  size_t room = numEdges ? *numEdges : 0;
  CUresult result = vgs_cuGraphGetEdges(hGraph, from, to, numEdges);
  clear(edgeData, from, room, result);
  return result;
}

CUresult vgs_cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode *dependencies, CUgraphEdgeData *edgeData,
                                           size_t *numDependencies) {
  size_t room = numDependencies ? *numDependencies : 0;
  CUresult result = vgs_cuGraphNodeGetDependencies(hNode, dependencies, numDependencies);
  clear(edgeData, dependencies, room, result);
  return result;
}

CUresult vgs_cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode *dependentNodes, CUgraphEdgeData *edgeData,
                                             size_t *numDependentNodes) {
  size_t room = numDependentNodes ? *numDependentNodes : 0;
  CUresult result = vgs_cuGraphNodeGetDependentNodes(hNode, dependentNodes, numDependentNodes);
  clear(edgeData, dependentNodes, room, result);
  return result;
}

CUresult vgs_cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                          const CUgraphEdgeData *edgeData, size_t numDependencies) {
  CUresult result = vgs_graph_check_edges(edgeData, numDependencies);
  return result ? result : vgs_cuGraphRemoveDependencies(hGraph, from, to, numDependencies);
}

/* --- in words --- */

static void print_node(FILE *file, CUgraphNode node) {
  static const char *const types[] = {"kernel", "memcpy", "memset",     "host",
                                      "graph",  "empty",  "wait event", "event record"};
  CUDA_KERNEL_NODE_PARAMS_v2 params;
  int type = -1;
  uint32_t id = (uint32_t)(uintptr_t)node;
  vgs_cuGraphNodeGetType(node, &type);
  bool known = type >= 0 && type < (int)(sizeof types / sizeof types[0]);
  fprintf(file, "  \"node_%u\" [shape=record label=\"{%s", id, known ? types[type] : "node");
  if (type == NODE_KERNEL && !vgs_cuGraphKernelNodeGetParams_v2(node, &params)) {
    struct vgs_kernel *kernel = vgs_kernel_find(params.func ? (const void *)params.func : (const void *)params.kern);
    fprintf(file, "|%s|grid %u %u %u, block %u %u %u, shared %u", kernel ? kernel->name : "", params.gridDimX,
            params.gridDimY, params.gridDimZ, params.blockDimX, params.blockDimY, params.blockDimZ,
            params.sharedMemBytes);
  }
  fprintf(file, "}\"];\n");
}

CUresult vgs_cuGraphDebugDotPrint(CUgraph hGraph, const char *path, unsigned int flags) {
  (void)flags; /* how much is said of each node */
  struct vgs_graph *graph = vgs_graph_find(hGraph);
  if (!graph || !path)
    return CUDA_ERROR_INVALID_VALUE;
  size_t count = 0;
  CUresult result = vgs_cuGraphGetEdges(hGraph, NULL, NULL, &count);
  CUgraphNode *ends = result ? NULL : calloc(2 * count + 1, sizeof *ends);
  if (!result && !ends)
    result = CUDA_ERROR_OUT_OF_MEMORY;
  if (!result && count)
    result = vgs_cuGraphGetEdges(hGraph, ends, ends + count, &count);
  FILE *file = result ? NULL : fopen(path, "we");
  if (!result && !file)
    result = errno == ENOENT ? CUDA_ERROR_FILE_NOT_FOUND : CUDA_ERROR_OPERATING_SYSTEM;
  if (file) {
    fprintf(file, "digraph \"graph_%u\" {\n", graph->object.id);
    for (uint32_t i = 0; i < graph->count; i++)
      print_node(file, graph->nodes[i]);
    for (size_t i = 0; i < count; i++)
      fprintf(file, "  \"node_%u\" -> \"node_%u\";\n", (uint32_t)(uintptr_t)ends[i],
              (uint32_t)(uintptr_t)ends[count + i]);
    fprintf(file, "}\n");
    if (fclose(file))
      result = CUDA_ERROR_OPERATING_SYSTEM;
  }
  free(ends);
  return result;
}
