/* Stored attributes of kernel nodes. */
#include "vgx_sim_graph_attribute.h"

#include <stdlib.h>
#include <string.h>

/* The attributes that are stored, in the order of a node's array. */
static const int stored[] = {
    CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
    CU_LAUNCH_ATTRIBUTE_PRIORITY,
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP,
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
    CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
};
enum { STORED = sizeof stored / sizeof stored[0], ARRAY_NBYTES = STORED * sizeof(CUlaunchAttributeValue) };

/* Where a node's array has the attribute; STORED: nowhere. */
static size_t place_of(int attribute) {
  size_t i = 0;
  while (i < STORED && stored[i] != attribute)
    i++;
  return i;
}

static CUlaunchAttributeValue initial(int attribute) {
  CUlaunchAttributeValue value = {{0}};
  if (attribute == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP)
    value.pad[1] = 1; /* the remote domain, by the driver's manual */
  return value;
}

static CUlaunchAttributeValue *array_create(void) {
  CUlaunchAttributeValue *values = malloc(ARRAY_NBYTES);
  for (size_t i = 0; values && i < STORED; i++)
    values[i] = initial(stored[i]);
  return values;
}

CUresult vgx_sim_attributes_copy(CUgraphNode to, const struct CUgraphNode_st *from) {
  CUlaunchAttributeValue *values = from->attributes ? malloc(ARRAY_NBYTES) : NULL;
  if (from->attributes && !values)
    return CUDA_ERROR_OUT_OF_MEMORY;
  if (values)
    memcpy(values, from->attributes, ARRAY_NBYTES);
  free(to->attributes);
  to->attributes = values;
  return CUDA_SUCCESS;
}

void vgx_sim_attributes_of_stream(CUgraphNode node, const struct CUstream_st *stream) {
  static const char no_window[sizeof stream->window];
  if (!stream->priority && !memcmp(stream->window, no_window, sizeof no_window))
    return;
  node->attributes = array_create(); /* out of memory: the node has the initial ones */
  if (!node->attributes)
    return;
  node->attributes[place_of(CU_LAUNCH_ATTRIBUTE_PRIORITY)].priority = stream->priority;
  memcpy(node->attributes[place_of(CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW)].pad, stream->window, sizeof no_window);
}

bool vgx_sim_attribute_is_stored(int attribute) { return place_of(attribute) != STORED; }

CUresult vgx_sim_attribute_put(CUgraphNode node, int attribute, const CUlaunchAttributeValue *value) {
  if (!node->attributes && !(node->attributes = array_create()))
    return CUDA_ERROR_OUT_OF_MEMORY;
  node->attributes[place_of(attribute)] = *value;
  return CUDA_SUCCESS;
}

CUlaunchAttributeValue vgx_sim_attribute_get(const struct CUgraphNode_st *node, int attribute) {
  return node->attributes ? node->attributes[place_of(attribute)] : initial(attribute);
}
