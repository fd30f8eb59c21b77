/* Conditional nodes. */
#ifndef VGS_GRAPH_CONDITION_H
#define VGS_GRAPH_CONDITION_H

#include "vgs_objects.h"

/* Add a conditional node; the handles of its graphs are returned in `params`. */
CUresult vgs_graph_add_conditional(CUgraphNode *made, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                   CUDA_CONDITIONAL_NODE_PARAMS *params);

#endif
