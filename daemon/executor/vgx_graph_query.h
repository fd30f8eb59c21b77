/* The graph of a capture that goes on. */
#ifndef VGX_GRAPH_QUERY_H
#define VGX_GRAPH_QUERY_H

#include "vgx_session.h"

/* Add a copy of `child` to the graph that the stream's capture makes; the next node will depend on it alone.
 * ILLEGAL_STATE: the stream does not capture into `graph`. */
CUresult vgx_capture_child(struct vgx_session *s, CUstream stream, CUgraph graph, CUgraph child);

/* The nodes that the stream's next node will depend on, at most *count, and the data of these edges; sets *count to how
 * many there are. */
CUresult vgx_capture_dependencies(struct vgx_session *s, CUstream stream, CUgraph graph, CUgraphNode *nodes,
                                  CUgraphEdgeData *edges, size_t *count);

#endif
