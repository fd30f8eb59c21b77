/* A node that takes the place of another. */
#ifndef VGS_GRAPH_REPLACE_H
#define VGS_GRAPH_REPLACE_H

#include "vgs_objects.h"

/* Whether a node can be replaced: the driver removes nodes of its graph. To be asked before the other one is added. */
CUresult vgs_graph_may_replace(const struct vgs_graph_node *node);

/* `fresh` has been added to the node's graph without edges: it takes the place of `node`, whose handle stays valid, and
 * `fresh` is destroyed with what `node` was. */
CUresult vgs_graph_replace(struct vgs_graph_node *node, CUgraphNode fresh);

#endif
