/* Nodes of any type by one function, and the text form of a graph (cuGraphDebugDotPrint). */
#define _GNU_SOURCE
#include "vgs_api.h"
#include "vgs_graph.h"
#include "vgs_graph_condition.h"
#include "vgs_graph_node.h"
#include "vgs_graph_part.h"
#include "vgs_graph_replace.h"
#include "vgs_kernel.h"
#include "vgs_log.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OWNERSHIP_MOVE = 1 }; /* CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE */

CUresult vgs_cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                            size_t numDependencies, CUgraphNodeParams *nodeParams) {
  CUgraphNodeParams *p = nodeParams;
  CUresult result;
  if (!p)
    return CUDA_ERROR_INVALID_VALUE;
  switch (p->type) {
  case CU_GRAPH_NODE_TYPE_KERNEL:
    return vgs_cuGraphAddKernelNode_v2(phGraphNode, hGraph, dependencies, numDependencies, &p->kernel);
  case CU_GRAPH_NODE_TYPE_MEMCPY:
    return vgs_cuGraphAddMemcpyNode(phGraphNode, hGraph, dependencies, numDependencies, &p->memcpy.copyParams,
                                    p->memcpy.copyCtx);
  case CU_GRAPH_NODE_TYPE_MEMSET:
    return vgs_cuGraphAddMemsetNode(phGraphNode, hGraph, dependencies, numDependencies, &p->memset.fill, p->memset.ctx);
  case CU_GRAPH_NODE_TYPE_HOST:
    return vgs_cuGraphAddHostNode(phGraphNode, hGraph, dependencies, numDependencies, &p->host);
  case CU_GRAPH_NODE_TYPE_GRAPH:
    if (p->graph.ownership)
      return p->graph.ownership == OWNERSHIP_MOVE
                 ? vgs_graph_move_child(phGraphNode, hGraph, dependencies, numDependencies, p->graph.graph)
                 : CUDA_ERROR_INVALID_VALUE;
    result = vgs_cuGraphAddChildGraphNode(phGraphNode, hGraph, dependencies, numDependencies, p->graph.graph);
    return result ? result : vgs_cuGraphChildGraphNodeGetGraph(*phGraphNode, &p->graph.graph);
  case CU_GRAPH_NODE_TYPE_EMPTY:
    return vgs_cuGraphAddEmptyNode(phGraphNode, hGraph, dependencies, numDependencies);
  case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    return vgs_cuGraphAddEventWaitNode(phGraphNode, hGraph, dependencies, numDependencies, p->event);
  case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    return vgs_cuGraphAddEventRecordNode(phGraphNode, hGraph, dependencies, numDependencies, p->event);
  case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    return vgs_cuGraphAddExternalSemaphoresSignalNode(phGraphNode, hGraph, dependencies, numDependencies,
                                                      &(CUDA_EXT_SEM_NODE_PARAMS){.numExtSems = p->semaphores.count});
  case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
    return vgs_cuGraphAddExternalSemaphoresWaitNode(phGraphNode, hGraph, dependencies, numDependencies,
                                                    &(CUDA_EXT_SEM_NODE_PARAMS){.numExtSems = p->semaphores.count});
  case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    return vgs_cuGraphAddMemAllocNode(phGraphNode, hGraph, dependencies, numDependencies, &p->alloc);
  case CU_GRAPH_NODE_TYPE_MEM_FREE:
    return vgs_cuGraphAddMemFreeNode(phGraphNode, hGraph, dependencies, numDependencies, p->free.dptr);
  case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
    return vgs_cuGraphAddBatchMemOpNode(phGraphNode, hGraph, dependencies, numDependencies, &p->memOp);
  case CU_GRAPH_NODE_TYPE_CONDITIONAL:
    return vgs_graph_add_conditional(phGraphNode, hGraph, dependencies, numDependencies, &p->conditional);
  default:
    return CUDA_ERROR_INVALID_VALUE;
  }
}

/* Edges with data (ports, types) are added after the node exists. */
static CUresult add_edges(CUgraph graph, CUgraphNode node, const CUgraphNode *dependencies, const CUgraphEdgeData *data,
                          size_t count) {
  VGS_FREED CUgraphNode *to = calloc(count, sizeof *to);
  if (!to)
    return CUDA_ERROR_OUT_OF_MEMORY;
  for (size_t i = 0; i < count; i++)
    to[i] = node;
  return vgs_cuGraphAddDependencies_v2(graph, dependencies, to, data, count);
}

CUresult vgs_cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                               const CUgraphEdgeData *dependencyData, size_t numDependencies,
                               CUgraphNodeParams *nodeParams) {
  enum { EDGES_MAX = 1 << 18 };
  CUgraphNode made = NULL;
  if (!phGraphNode || numDependencies > EDGES_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  if (!vgs_edges_have_data(dependencyData, numDependencies))
    return vgs_cuGraphAddNode(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
  CUresult result = vgs_cuGraphAddNode(&made, hGraph, NULL, 0, nodeParams);
  if (result)
    return result;
  result = add_edges(hGraph, made, dependencies, dependencyData, numDependencies);
  if (result)
    vgs_cuGraphDestroyNode(made);
  else
    *phGraphNode = made;
  return result;
}

/* The parameters of these nodes cannot be changed: the manual of this function says that of nodes of memory, that of
 * cuGraphExecUpdate of conditional nodes. An empty node has none. */
static CUresult set_fixed(CUgraphNode node, int type) {
  int found;
  CUresult result = vgs_cuGraphNodeGetType(node, &found);
  if (result || found != type)
    return CUDA_ERROR_INVALID_VALUE;
  return type == CU_GRAPH_NODE_TYPE_EMPTY ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult set_child(CUgraphNode handle, CUgraph child, int ownership) {
  static bool named;
  int found;
  struct vgs_graph_node *node = vgs_graph_node_find(handle);
  CUresult result = node && vgs_graph_find(child) ? vgs_cuGraphNodeGetType(handle, &found) : CUDA_ERROR_INVALID_VALUE;
  if (result || found != CU_GRAPH_NODE_TYPE_GRAPH || ownership < 0 || ownership > OWNERSHIP_MOVE)
    return CUDA_ERROR_INVALID_VALUE;
  if (ownership)
    return vgs_unimplemented("cuGraphNodeSetParams that moves a graph into a node", &named);
  CUgraphNode fresh;
  result = vgs_graph_may_replace(node);
  if (!result)
    result = vgs_cuGraphAddChildGraphNode(&fresh, node->graph, NULL, 0, child);
  return result ? result : vgs_graph_replace(node, fresh);
}

CUresult vgs_cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams *nodeParams) {
  CUgraphNodeParams *p = nodeParams;
  if (!p)
    return CUDA_ERROR_INVALID_VALUE;
  switch (p->type) {
  case CU_GRAPH_NODE_TYPE_KERNEL:
    return vgs_cuGraphKernelNodeSetParams_v2(hNode, &p->kernel);
  case CU_GRAPH_NODE_TYPE_MEMCPY:
    return vgs_cuGraphMemcpyNodeSetParams(hNode, &p->memcpy.copyParams);
  case CU_GRAPH_NODE_TYPE_MEMSET:
    return vgs_cuGraphMemsetNodeSetParams(hNode, &p->memset.fill);
  case CU_GRAPH_NODE_TYPE_HOST:
    return vgs_cuGraphHostNodeSetParams(hNode, &p->host);
  case CU_GRAPH_NODE_TYPE_GRAPH:
    return set_child(hNode, p->graph.graph, p->graph.ownership);
  case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    return vgs_cuGraphEventWaitNodeSetEvent(hNode, p->event);
  case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    return vgs_cuGraphEventRecordNodeSetEvent(hNode, p->event);
  case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    return vgs_cuGraphExternalSemaphoresSignalNodeSetParams(
        hNode, &(CUDA_EXT_SEM_NODE_PARAMS){.numExtSems = p->semaphores.count});
  case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
    return vgs_cuGraphExternalSemaphoresWaitNodeSetParams(
        hNode, &(CUDA_EXT_SEM_NODE_PARAMS){.numExtSems = p->semaphores.count});
  case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
    return vgs_cuGraphBatchMemOpNodeSetParams(hNode, &p->memOp);
  case CU_GRAPH_NODE_TYPE_EMPTY:
  case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
  case CU_GRAPH_NODE_TYPE_MEM_FREE:
  case CU_GRAPH_NODE_TYPE_CONDITIONAL:
    return set_fixed(hNode, p->type);
  default:
    return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult vgs_cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams *nodeParams) {
  CUgraphNodeParams *p = nodeParams;
  if (!p)
    return CUDA_ERROR_INVALID_VALUE;
  switch (p->type) {
  case CU_GRAPH_NODE_TYPE_KERNEL:
    return vgs_cuGraphExecKernelNodeSetParams_v2(hGraphExec, hNode, &p->kernel);
  case CU_GRAPH_NODE_TYPE_MEMCPY:
    return vgs_cuGraphExecMemcpyNodeSetParams(hGraphExec, hNode, &p->memcpy.copyParams, p->memcpy.copyCtx);
  case CU_GRAPH_NODE_TYPE_MEMSET:
    return vgs_cuGraphExecMemsetNodeSetParams(hGraphExec, hNode, &p->memset.fill, p->memset.ctx);
  case CU_GRAPH_NODE_TYPE_HOST:
    return vgs_cuGraphExecHostNodeSetParams(hGraphExec, hNode, &p->host);
  case CU_GRAPH_NODE_TYPE_GRAPH:
    return vgs_cuGraphExecChildGraphNodeSetParams(hGraphExec, hNode, p->graph.graph);
  case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    return vgs_cuGraphExecEventWaitNodeSetEvent(hGraphExec, hNode, p->event);
  case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    return vgs_cuGraphExecEventRecordNodeSetEvent(hGraphExec, hNode, p->event);
  case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    return vgs_cuGraphExecExternalSemaphoresSignalNodeSetParams(
        hGraphExec, hNode, &(CUDA_EXT_SEM_NODE_PARAMS){.numExtSems = p->semaphores.count});
  case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
    return vgs_cuGraphExecExternalSemaphoresWaitNodeSetParams(
        hGraphExec, hNode, &(CUDA_EXT_SEM_NODE_PARAMS){.numExtSems = p->semaphores.count});
  case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
    return vgs_cuGraphExecBatchMemOpNodeSetParams(hGraphExec, hNode, &p->memOp);
  case CU_GRAPH_NODE_TYPE_EMPTY:
  case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
  case CU_GRAPH_NODE_TYPE_MEM_FREE:
  case CU_GRAPH_NODE_TYPE_CONDITIONAL:
    return vgs_graph_exec_find(hGraphExec) ? set_fixed(hNode, p->type) : CUDA_ERROR_INVALID_VALUE;
  default:
    return CUDA_ERROR_INVALID_VALUE;
  }
}

/* --- text form --- */

/* The graph inside a child graph's node; NULL: the node is none. */
static CUgraph print_node(FILE *file, CUgraphNode node) {
  static const char *const types[] = {"kernel",
                                      "memcpy",
                                      "memset",
                                      "host",
                                      "graph",
                                      "empty",
                                      "wait event",
                                      "event record",
                                      "signal semaphores",
                                      "wait for semaphores",
                                      "memory allocation",
                                      "memory free",
                                      "operations on words",
                                      "conditional"};
  CUDA_KERNEL_NODE_PARAMS_v2 params;
  int type = -1;
  uint32_t id = (uint32_t)(uintptr_t)node;
  vgs_cuGraphNodeGetType(node, &type);
  bool known = type >= 0 && type < (int)(sizeof types / sizeof types[0]);
  fprintf(file, "  \"node_%u\" [shape=record label=\"{%s", id, known ? types[type] : "node");
  if (type == CU_GRAPH_NODE_TYPE_KERNEL && !vgs_cuGraphKernelNodeGetParams_v2(node, &params)) {
    struct vgs_kernel *kernel = vgs_kernel_find(params.func ? (const void *)params.func : (const void *)params.kern);
    fprintf(file, "|%s|grid %u %u %u, block %u %u %u, shared %u", kernel ? kernel->name : "", params.gridDimX,
            params.gridDimY, params.gridDimZ, params.blockDimX, params.blockDimY, params.blockDimZ,
            params.sharedMemBytes);
  }
  fprintf(file, "}\"];\n");
  CUgraph inside = NULL;
  return type == CU_GRAPH_NODE_TYPE_GRAPH && !vgs_cuGraphChildGraphNodeGetGraph(node, &inside) ? inside : NULL;
}

static CUresult print_edges(FILE *file, CUgraph handle) {
  size_t count = 0;
  CUresult result = vgs_cuGraphGetEdges(handle, NULL, NULL, &count);
  if (result || !count)
    return result;
  VGS_FREED CUgraphNode *ends = calloc(2 * count, sizeof *ends);
  if (!ends)
    return CUDA_ERROR_OUT_OF_MEMORY;
  result = vgs_cuGraphGetEdges(handle, ends, ends + count, &count);
  for (size_t i = 0; !result && i < count; i++)
    fprintf(file, "  \"node_%u\" -> \"node_%u\";\n", (uint32_t)(uintptr_t)ends[i],
            (uint32_t)(uintptr_t)ends[count + i]);
  return result;
}

/* Nodes and edges of a graph; the graphs inside its nodes as boxes. */
static CUresult print_graph(FILE *file, CUgraph handle) {
  struct vgs_graph *graph = vgs_graph_find(handle);
  CUresult result = graph ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  for (uint32_t i = 0; !result && i < graph->count; i++) {
    CUgraph inside = print_node(file, graph->nodes[i]);
    const struct vgs_graph_node *node = vgs_graph_node_find(graph->nodes[i]);
    for (uint32_t k = 0; node && !result && (inside || k < node->body_count); k++, inside = NULL) {
      fprintf(file, "  subgraph \"cluster_%u_%u\" { label=\"in node_%u\"\n", node->object.id, k, node->object.id);
      result = print_graph(file, inside ? inside : node->bodies[k]);
      fprintf(file, "  }\n");
    }
  }
  return result ? result : print_edges(file, handle);
}

CUresult vgs_cuGraphDebugDotPrint(CUgraph hGraph, const char *path, unsigned int flags) {
  (void)flags; /* how much detail each node gets */
  struct vgs_graph *graph = vgs_graph_find(hGraph);
  if (!graph || !path)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = vgs_graph_name_nodes(graph);
  FILE *file = result ? NULL : fopen(path, "we");
  if (result)
    return result;
  if (!file)
    return errno == ENOENT ? CUDA_ERROR_FILE_NOT_FOUND : CUDA_ERROR_OPERATING_SYSTEM;
  fprintf(file, "digraph \"graph_%u\" {\n", graph->object.id);
  result = print_graph(file, hGraph);
  fprintf(file, "}\n");
  if (fclose(file) && !result)
    result = CUDA_ERROR_OPERATING_SYSTEM;
  return result;
}
