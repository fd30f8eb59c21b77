/* Conditional nodes. */
#ifndef VGS_GRAPH_CONDITION_H
#define VGS_GRAPH_CONDITION_H

#include "vgs_objects.h"

/* Add one; its graphs are a result in `params`. */
CUresult vgs_graph_add_conditional(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                   CUDA_CONDITIONAL_NODE_PARAMS *params);

#endif
