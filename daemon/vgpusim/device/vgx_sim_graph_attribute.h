/* Attributes of kernel nodes that are stored and returned, without effect here. Locking: the runtime lock. */
#ifndef VGX_SIM_GRAPH_ATTRIBUTE_H
#define VGX_SIM_GRAPH_ATTRIBUTE_H

#include "vgx_sim_graph.h"

bool vgx_sim_attribute_is_stored(int attribute);
/* Of one that is stored. */
CUresult vgx_sim_attribute_put(CUgraphNode node, int attribute, const CUlaunchAttributeValue *value);
CUlaunchAttributeValue vgx_sim_attribute_get(const struct CUgraphNode_st *node, int attribute);

/* Give a node those of another, or a captured one those of its stream. */
CUresult vgx_sim_attributes_copy(CUgraphNode to, const struct CUgraphNode_st *from);
void vgx_sim_attributes_of_stream(CUgraphNode node, const struct CUstream_st *stream);

#endif
