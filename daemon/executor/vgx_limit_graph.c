/* Memory of graphs: those bytes count that their nodes allocate, from when they are made executable, and after that
 * what the driver still has reserved. */
#include "vgx_limit_graph.h"

#include <stdlib.h>

#include "vgw_device_memory.h"
#include "vgx_charge.h"
#include "vgx_limit_pool.h"

enum { NODE_GRAPH = 4, NODE_MEM_ALLOC = 10 }; /* CUgraphNodeType */
enum { DEPTH_MAX = 16 };

#define real vgx_limit_real

/* Add what a graph's nodes allocate, those of its child graphs included, to `sums`. */
static CUresult sum_nodes(CUgraph graph, uint64_t sums[VGW_SIMULATED_DEVICES_MAX], int depth) {
  size_t count = 0;
  CUresult result = real->cuGraphGetNodes(graph, NULL, &count);
  CUgraphNode *nodes = result == CUDA_SUCCESS && count ? malloc(count * sizeof(CUgraphNode)) : NULL;
  if (result != CUDA_SUCCESS || !count || !nodes)
    return result == CUDA_SUCCESS && count ? CUDA_ERROR_OUT_OF_MEMORY : result;
  result = real->cuGraphGetNodes(graph, nodes, &count);
  for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
    int type = 0;
    result = real->cuGraphNodeGetType(nodes[i], &type);
    if (result == CUDA_SUCCESS && type == NODE_MEM_ALLOC) {
      CUDA_MEM_ALLOC_NODE_PARAMS params = {0};
      result = real->cuGraphMemAllocNodeGetParams(nodes[i], &params);
      CUdevice device = params.poolProps.location.id;
      if (result == CUDA_SUCCESS && vgx_charge_is_device(device))
        sums[device] += params.bytesize;
    } else if (result == CUDA_SUCCESS && type == NODE_GRAPH) {
      CUgraph child;
      result = depth < DEPTH_MAX ? real->cuGraphChildGraphNodeGetGraph(nodes[i], &child) : CUDA_ERROR_NOT_SUPPORTED;
      result = result == CUDA_SUCCESS ? sum_nodes(child, sums, depth + 1) : result;
    }
  }
  free(nodes);
  return result;
}

static uint64_t key_of(CUgraphExec exec, CUdevice device) { return (uintptr_t)exec + (uint32_t)device; }

/* Have entries own what nodes allocate, which is counted. False: memory is short; none of it counts any more. */
static bool settle(CUgraphExec exec, const uint64_t sums[VGW_SIMULATED_DEVICES_MAX]) {
  CUdevice device = 0;
  for (; vgx_charge_is_device(device); device++)
    if (sums[device] && !vgx_charge_add(VGX_CHARGE_GRAPH, key_of(exec, device), device, sums[device], NULL))
      break;
  if (!vgx_charge_is_device(device))
    return true;
  for (CUdevice rest = device; vgx_charge_is_device(rest); rest++)
    vgx_charge_change(rest, sums[rest], 0);
  while (device-- > 0)
    vgx_charge_end(vgx_charge_take(VGX_CHARGE_GRAPH, key_of(exec, device)), true);
  return false;
}

static CUresult instantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
  uint64_t sums[VGW_SIMULATED_DEVICES_MAX] = {0};
  CUresult result = sum_nodes(graph, sums, 0);
  CUdevice device = 0;
  for (; vgx_charge_is_device(device) && result == CUDA_SUCCESS; device++)
    result = vgx_limit_reserve(device, sums[device]);
  if (result != CUDA_SUCCESS)
    device--; /* of this one nothing counts */
  else
    result = real->cuGraphInstantiateWithFlags(exec, graph, flags);
  if (result != CUDA_SUCCESS) {
    while (device-- > 0)
      vgx_charge_change(device, sums[device], 0);
    return result;
  }
  if (settle(*exec, sums))
    return CUDA_SUCCESS;
  real->cuGraphExecDestroy(*exec);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

/* What it has allocated and not freed stays with the device, and so does what the driver keeps for other graphs. */
static CUresult destroy_exec(CUgraphExec exec) {
  struct vgx_charge_entry *entries[VGW_SIMULATED_DEVICES_MAX] = {0};
  for (CUdevice device = 0; vgx_charge_is_device(device); device++)
    entries[device] = vgx_charge_take(VGX_CHARGE_GRAPH, key_of(exec, device));
  CUresult result = real->cuGraphExecDestroy(exec);
  for (CUdevice device = 0; vgx_charge_is_device(device); device++)
    vgx_limit_graph_ends(device, entries[device], result == CUDA_SUCCESS);
  return result;
}

/* The driver refuses this for most graphs with memory of their own. */
static CUresult update_exec(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info) {
  uint64_t sums[VGW_SIMULATED_DEVICES_MAX] = {0};
  CUresult result = sum_nodes(graph, sums, 0);
  for (CUdevice device = 0; vgx_charge_is_device(device) && result == CUDA_SUCCESS; device++)
    if (sums[device] > vgx_charge_nbytes(VGX_CHARGE_GRAPH, key_of(exec, device)))
      result = CUDA_ERROR_NOT_SUPPORTED;
  return result == CUDA_SUCCESS ? real->cuGraphExecUpdate_v2(exec, graph, info) : result;
}

static CUresult trim_graphs(CUdevice device) {
  CUresult result = real->cuDeviceGraphMemTrim(device);
  vgx_limit_look(device);
  return result;
}

void vgx_limit_graphs(struct vgx_backend *limited) {
#define REPLACE(function, with)                                                                                        \
  if (real->function)                                                                                                  \
    limited->function = with;
  /* A driver that does not tell what graphs have reserved is not asked for it either. */
  if (!real->cuDeviceGetGraphMemAttribute || !real->cuDeviceGraphMemTrim || !real->cuGraphMemAllocNodeGetParams ||
      !real->cuGraphGetNodes || !real->cuGraphNodeGetType) {
    limited->cuGraphAddMemAllocNode = NULL;
    return;
  }
  REPLACE(cuGraphInstantiateWithFlags, instantiate)
  REPLACE(cuGraphExecDestroy, destroy_exec)
  REPLACE(cuGraphExecUpdate_v2, update_exec)
  REPLACE(cuDeviceGraphMemTrim, trim_graphs)
}
