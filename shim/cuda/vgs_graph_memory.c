#include "vgs_graph_memory.h"
#include "vgs_claim.h"
#include "vgs_context.h"
#include "vgs_device.h"
#include "vgs_graph_node.h"
#include "vgs_range.h"
#include "vgs_word.h"
#include <stdlib.h>
#include <string.h>

enum { LOCATION_DEVICE = 1, ALLOCATION_PINNED = 1 };

/* Translate a location's device to the worker's number, or back. */
static bool translate(CUmemLocation *location, CUdevice (*number)(CUdevice)) {
  bool known = location->type == LOCATION_DEVICE && (number == vgs_device_of_wire || vgs_device(location->id));
  if (known)
    location->id = number(location->id);
  return known && location->id >= 0;
}

CUresult vgs_node_memory_check(struct vgs_node_memory *memory, const CUDA_MEM_ALLOC_NODE_PARAMS *p) {
  if (!p || p->poolProps.allocType != ALLOCATION_PINNED || (p->accessDescCount && !p->accessDescs) ||
      p->accessDescCount > VGS_NODE_ACCESS_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  if (p->poolProps.handleTypes) /* the manual: what graphs allocate is not shared */
    return CUDA_ERROR_NOT_SUPPORTED;
  memory->params = *p;
  if (!translate(&memory->params.poolProps.location, vgs_device_wire))
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < p->accessDescCount; i++) {
    memory->descs[i] = p->accessDescs[i];
    if (!translate(&memory->descs[i].location, vgs_device_wire))
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

/* A node of this kind cannot be removed from its graph, so its address is claimed only once. */
CUresult vgs_node_memory_add(CUdeviceptr address, CUDA_MEM_ALLOC_NODE_PARAMS *params) {
  if (!vgs_claim_only(address, params->bytesize, "memory of a graph's node"))
    return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result =
      vgs_range_add_allocation(address, params->bytesize, VGS_RANGE_GRAPH, false, params->poolProps.location.id);
  if (!result)
    params->dptr = address;
  return result;
}

/* Replace the descriptors or operations that a node keeps. */
static void *keep(struct vgs_graph_node *node, const void *array, size_t nbytes) {
  void *copy = malloc(nbytes + 1);
  if (copy) {
    memcpy(copy, array, nbytes);
    free(node->block);
    node->block = copy;
  }
  return copy;
}

CUresult vgs_node_memory_params(struct vgs_graph_node *node, const struct vgs_node_memory *memory,
                                CUDA_MEM_ALLOC_NODE_PARAMS *params) {
  CUDA_MEM_ALLOC_NODE_PARAMS found = memory->params;
  if (found.accessDescCount > VGS_NODE_ACCESS_MAX || !translate(&found.poolProps.location, vgs_device_of_wire))
    return CUDA_ERROR_UNKNOWN;
  CUmemAccessDesc *descs = keep(node, memory->descs, found.accessDescCount * sizeof *descs);
  if (!descs)
    return CUDA_ERROR_OUT_OF_MEMORY;
  for (size_t i = 0; i < found.accessDescCount; i++)
    if (!translate(&descs[i].location, vgs_device_of_wire))
      return CUDA_ERROR_UNKNOWN;
  found.accessDescs = found.accessDescCount ? descs : NULL;
  *params = found;
  return CUDA_SUCCESS;
}

CUresult vgs_node_words_check(const CUDA_BATCH_MEM_OP_NODE_PARAMS *p, uint32_t *context_id) {
  if (!p || !p->paramArray || !p->count || p->count > VGS_NODE_WORDS_MAX || p->flags ||
      !vgs_words_are_known(p->paramArray, p->count))
    return CUDA_ERROR_INVALID_VALUE;
  return vgs_graph_context_id(p->ctx, context_id);
}

CUresult vgs_node_words_params(struct vgs_graph_node *node, uint32_t context_id, const CUstreamBatchMemOpParams *words,
                               uint32_t count, CUDA_BATCH_MEM_OP_NODE_PARAMS *params) {
  struct vgs_context *context = vgs_context_of_wire(context_id);
  if (!context || count > VGS_NODE_WORDS_MAX)
    return CUDA_ERROR_UNKNOWN;
  CUstreamBatchMemOpParams *kept = keep(node, words, count * sizeof *words);
  if (!kept)
    return CUDA_ERROR_OUT_OF_MEMORY;
  *params = (CUDA_BATCH_MEM_OP_NODE_PARAMS){.ctx = vgs_object_handle(context), .count = count, .paramArray = kept};
  return CUDA_SUCCESS;
}
