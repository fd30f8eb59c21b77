/* Nodes of graphs: added one by one, or named once a captured graph's are asked for. Each lives as long as its graph.
 * Copies: vgs_graph_copy.c. Host functions and child graphs: vgs_graph_part.c. */
#include "vgs_api.h"
#include "vgs_enter.h"
#include "vgs_graph.h"
#include "vgs_kernel.h"
#include "vgs_launch.h"
#include "vgs_log.h"
#include <stdlib.h>
#include <string.h>

enum { NODES_MAX = VGW_PIECE_NBYTES / sizeof(uint32_t) }; /* that one record can name */

/* Room for one handle more. */
static bool make_room(struct vgs_graph *graph, uint32_t more) {
  if (graph->count + more <= graph->capacity)
    return true;
  uint32_t capacity = 2 * graph->capacity + more;
  CUgraphNode *grown = realloc(graph->nodes, capacity * sizeof(CUgraphNode));
  if (!grown)
    return false;
  graph->nodes = grown;
  graph->capacity = capacity;
  return true;
}

struct vgs_graph_node *vgs_graph_node_create(struct vgs_graph *graph) {
  struct vgs_graph_node *node = make_room(graph, 1) ? vgs_object_create(VGW_KIND_GRAPH_NODE, 0) : NULL;
  if (node)
    node->graph = vgs_object_handle(graph);
  return node;
}

void vgs_graph_node_add(struct vgs_graph *graph, struct vgs_graph_node *node) {
  graph->nodes[graph->count++] = vgs_object_handle(node);
}

CUresult vgs_adding_begin(struct vgs_adding *a, CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies,
                          size_t count) {
  a->graph = vgs_graph_find(graph);
  if (!made || !a->graph || count > NODES_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = vgs_graph_name_nodes(a->graph);
  if (!result)
    result = vgs_handle_ids(VGW_KIND_GRAPH_NODE, (const void *const *)dependencies, count, CUDA_ERROR_INVALID_VALUE,
                            &a->dependencies);
  if (result)
    return result;
  a->count = count;
  a->node = vgs_graph_node_create(a->graph);
  if (a->node)
    return CUDA_SUCCESS;
  free(a->dependencies);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult vgs_adding_end(struct vgs_adding *a, CUgraphNode *made, CUresult result) {
  free(a->dependencies);
  if (result) {
    vgs_object_destroy(a->node);
    return result;
  }
  vgs_graph_node_add(a->graph, a->node);
  *made = vgs_object_handle(a->node);
  return CUDA_SUCCESS;
}

/* --- kernels --- */

/* Check and pack; `block` is malloc'ed. */
static CUresult pack(const CUDA_KERNEL_NODE_PARAMS_v2 *p, struct vgs_launch *launch, char **block) {
  if (!p)
    return CUDA_ERROR_INVALID_VALUE;
  *launch = (struct vgs_launch){.kernel = vgs_kernel_find(p->func ? (const void *)p->func : (const void *)p->kern),
                                .grid = {p->gridDimX, p->gridDimY, p->gridDimZ},
                                .block = {p->blockDimX, p->blockDimY, p->blockDimZ},
                                .shared_nbytes = p->sharedMemBytes,
                                .params = p->kernelParams,
                                .extra = p->extra};
  if (!launch->kernel)
    return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = vgs_kernel_describe(launch->kernel);
  if (!result)
    result = vgs_launch_check_shape(launch);
  if (result)
    return result;
  const void *given;
  char *packed = calloc(1, (size_t)launch->kernel->param_nbytes + 1);
  if (!packed)
    return CUDA_ERROR_OUT_OF_MEMORY;
  result = vgs_launch_pack_params(launch, packed, &given);
  if (result) {
    free(packed);
    return result;
  }
  if (given != packed)
    memcpy(packed, given, launch->kernel->param_nbytes);
  *block = packed;
  return CUDA_SUCCESS;
}

/* What cuGraphKernelNodeGetParams tells: the parameters, pointing into a copy of the node's own. Takes over `block`. */
static void keep(struct vgs_graph_node *node, const CUDA_KERNEL_NODE_PARAMS_v2 *p, const struct vgs_kernel *kernel,
                 char *block) {
  void **pointers = malloc((kernel->param_count + 1) * sizeof *pointers);
  if (!pointers) { /* the node is right; only its parameters cannot be returned */
    free(block);
    block = NULL;
  }
  for (uint32_t i = 0; pointers && i < kernel->param_count; i++)
    pointers[i] = block + kernel->params[i].offset;
  free(node->block);
  free(node->pointers);
  node->block = block;
  node->pointers = pointers;
  node->params = *p;
  node->params.kernelParams = pointers;
  node->params.extra = NULL;
}

#define SHAPE(l)                                                                                                       \
  (l).kernel->object.kind, (l).kernel->object.id, (l).grid[0], (l).grid[1], (l).grid[2], (l).block[0], (l).block[1],   \
      (l).block[2], (l).shared_nbytes, (l).kernel->param_nbytes

CUresult vgs_cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                     size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS_v2 *nodeParams) {
  struct vgs_launch launch;
  struct vgs_adding a;
  char *block;
  CUresult result = pack(nodeParams, &launch, &block);
  if (result)
    return result;
  result = vgs_adding_begin(&a, phGraphNode, hGraph, dependencies, numDependencies);
  if (!result)
    result = vgs_adding_end(&a, phGraphNode,
                            vgs_send_cuGraphAddKernelNode_v2(a.node->object.id, a.graph->object.id, SHAPE(launch),
                                                             a.dependencies, a.count, block));
  if (result)
    free(block);
  else
    keep(a.node, nodeParams, launch.kernel, block);
  return result;
}

CUresult vgs_cuGraphKernelNodeSetParams_v2(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v2 *nodeParams) {
  struct vgs_launch launch;
  char *block;
  struct vgs_graph_node *node = vgs_graph_node_find(hNode);
  CUresult result = node ? pack(nodeParams, &launch, &block) : CUDA_ERROR_INVALID_VALUE;
  if (result)
    return result;
  result = vgs_send_cuGraphKernelNodeSetParams_v2(node->object.id, SHAPE(launch), block);
  if (result)
    free(block);
  else
    keep(node, nodeParams, launch.kernel, block);
  return result;
}

CUresult vgs_cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                               const CUDA_KERNEL_NODE_PARAMS_v2 *nodeParams) {
  struct vgs_launch launch;
  char *block;
  struct vgs_graph_exec *exec = vgs_graph_exec_find(hGraphExec);
  struct vgs_graph_node *node = vgs_graph_node_find(hNode);
  CUresult result = exec && node ? pack(nodeParams, &launch, &block) : CUDA_ERROR_INVALID_VALUE;
  if (result)
    return result;
  result = vgs_send_cuGraphExecKernelNodeSetParams_v2(exec->object.id, node->object.id, SHAPE(launch), block);
  free(block);
  return result;
}

/* A captured node's, from the worker: kept as if the program had given them. */
static CUresult fetch_params(struct vgs_graph_node *node) {
  enum { PARAMS_NBYTES = 32768 };
  CUDA_KERNEL_NODE_PARAMS_v2 p = {0};
  uint32_t kind, object;
  char *block = calloc(1, PARAMS_NBYTES);
  if (!block)
    return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = vgs_send_cuGraphKernelNodeGetParams_v2(node->object.id, &kind, &object, &p.gridDimX, &p.gridDimY,
                                                           &p.gridDimZ, &p.blockDimX, &p.blockDimY, &p.blockDimZ,
                                                           &p.sharedMemBytes, PARAMS_NBYTES, block);
  bool known = !result && (kind == VGW_KIND_FUNCTION || kind == VGW_KIND_KERNEL);
  struct vgs_kernel *kernel = known ? vgs_object_at(kind, object) : NULL;
  if (!result)
    result = kernel ? vgs_kernel_describe(kernel) : CUDA_ERROR_UNKNOWN;
  if (!result && kernel->param_nbytes > PARAMS_NBYTES)
    result = CUDA_ERROR_UNKNOWN;
  if (result) {
    free(block);
    return result;
  }
  if (kind == VGW_KIND_FUNCTION)
    p.func = vgs_object_handle(kernel);
  else
    p.kern = vgs_object_handle(kernel);
  keep(node, &p, kernel, block);
  return node->pointers ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult vgs_cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v2 *nodeParams) {
  struct vgs_graph_node *node = vgs_graph_node_find(hNode);
  if (!node || !nodeParams)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = node->pointers ? CUDA_SUCCESS : fetch_params(node);
  if (!result)
    *nodeParams = node->params;
  return result;
}

/* A runtime before 12 knows functions alone: a kernel is taken for one wherever it goes. */
CUresult vgs_cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams) {
  CUDA_KERNEL_NODE_PARAMS_v2 wide;
  CUresult result = nodeParams ? vgs_cuGraphKernelNodeGetParams_v2(hNode, &wide) : CUDA_ERROR_INVALID_VALUE;
  if (result)
    return result;
  if (!wide.func)
    wide.func = (CUfunction)wide.kern;
  memcpy(nodeParams, &wide, sizeof *nodeParams);
  return CUDA_SUCCESS;
}

/* The older parameters end before what names a kernel by CUkernel. */
static CUDA_KERNEL_NODE_PARAMS_v2 widen(const CUDA_KERNEL_NODE_PARAMS_v1 *p) {
  CUDA_KERNEL_NODE_PARAMS_v2 wide = {0};
  memcpy(&wide, p, sizeof *p);
  return wide;
}

CUresult vgs_cuGraphAddKernelNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                  size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams) {
  if (!nodeParams)
    return CUDA_ERROR_INVALID_VALUE;
  CUDA_KERNEL_NODE_PARAMS_v2 wide = widen(nodeParams);
  return vgs_cuGraphAddKernelNode_v2(phGraphNode, hGraph, dependencies, numDependencies, &wide);
}

CUresult vgs_cuGraphKernelNodeSetParams(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams) {
  if (!nodeParams)
    return CUDA_ERROR_INVALID_VALUE;
  CUDA_KERNEL_NODE_PARAMS_v2 wide = widen(nodeParams);
  return vgs_cuGraphKernelNodeSetParams_v2(hNode, &wide);
}

CUresult vgs_cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams) {
  if (!nodeParams)
    return CUDA_ERROR_INVALID_VALUE;
  CUDA_KERNEL_NODE_PARAMS_v2 wide = widen(nodeParams);
  return vgs_cuGraphExecKernelNodeSetParams_v2(hGraphExec, hNode, &wide);
}

/* --- the rest --- */

CUresult vgs_graph_context_id(CUcontext ctx, uint32_t *id) {
  struct vgs_context *context = ctx ? vgs_context_find(ctx) : vgs_context_entered;
  if (!context)
    return CUDA_ERROR_INVALID_CONTEXT;
  *id = context->wire_id;
  return CUDA_SUCCESS;
}

CUresult vgs_graph_check_edges(const CUgraphEdgeData *data, size_t count) {
  static const CUgraphEdgeData plain;
  static bool named;
  for (size_t i = 0; data && i < count; i++)
    if (memcmp(&data[i], &plain, sizeof plain))
      return vgs_unimplemented("edge data of graph dependencies", &named);
  return CUDA_SUCCESS;
}

CUresult vgs_cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                       const void *edgeData, size_t numDependencies) {
  CUresult result = vgs_graph_check_edges(edgeData, numDependencies);
  return result ? result : vgs_cuGraphAddDependencies(hGraph, from, to, numDependencies);
}

/* Those named before come first, in the driver's order, too: nodes are only added. */
CUresult vgs_graph_name_nodes(struct vgs_graph *graph) {
  size_t count, total;
  if (!graph->unnamed)
    return CUDA_SUCCESS;
  CUresult result = vgs_send_cuGraphGetNodes(graph->object.id, &count, 0, "");
  if (result)
    return result;
  if (count < graph->count || count > NODES_MAX)
    return CUDA_ERROR_UNKNOWN;
  bool room = make_room(graph, (uint32_t)count - graph->count);
  uint32_t *ids = room ? malloc((count + 1) * sizeof *ids) : NULL;
  result = ids ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  uint32_t made = graph->count;
  for (uint32_t i = 0; !result && i < graph->count; i++)
    ids[i] = (uint32_t)(uintptr_t)graph->nodes[i]; /* a handle's low half is its id */
  for (; !result && made < count; made++) {
    struct vgs_graph_node *node = vgs_object_create(VGW_KIND_GRAPH_NODE, 0);
    if (!node) {
      result = CUDA_ERROR_OUT_OF_MEMORY;
      break;
    }
    node->graph = vgs_object_handle(graph);
    ids[made] = node->object.id;
    graph->nodes[made] = vgs_object_handle(node);
  }
  if (!result && count > graph->count)
    result = vgs_send_cuGraphGetNodes(graph->object.id, &total, (uint32_t)(count * sizeof *ids), ids);
  free(ids);
  if (result) {
    while (made-- > graph->count)
      vgs_object_destroy(vgs_graph_node_find(graph->nodes[made]));
    return result;
  }
  graph->count = (uint32_t)count;
  graph->unnamed = graph->growing;
  return CUDA_SUCCESS;
}

CUresult vgs_cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes) {
  struct vgs_graph *graph = vgs_graph_find(hGraph);
  if (!graph || !numNodes)
    return CUDA_ERROR_INVALID_VALUE;
  size_t count = graph->count;
  if (graph->unnamed) {
    CUresult result = nodes ? vgs_graph_name_nodes(graph) : vgs_send_cuGraphGetNodes(graph->object.id, &count, 0, "");
    if (result)
      return result;
    if (nodes)
      count = graph->count;
  }
  if (nodes) {
    size_t room = *numNodes;
    for (size_t i = 0; i < room; i++) /* beyond the last: NULL, says the manual */
      nodes[i] = i < count ? graph->nodes[i] : NULL;
    count = room < count ? room : count;
  }
  *numNodes = count;
  return CUDA_SUCCESS;
}
