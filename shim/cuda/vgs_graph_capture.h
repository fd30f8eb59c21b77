/* The beginning of a capture, and its end with its stream's. */
#ifndef VGS_GRAPH_CAPTURE_H
#define VGS_GRAPH_CAPTURE_H

#include "vgs_graph.h"

/* The first function checks whether a stream can be captured in a mode; the second stores that the stream is captured,
 * into a graph that may have an object already. */
CUresult vgs_graph_capture_check(const struct vgs_stream *stream, int mode);
CUresult vgs_graph_capture_begin(struct vgs_stream *stream, struct vgs_graph *graph, int mode, bool owned);

/* The stream is about to be destroyed, and its capture ends. A graph that was made for the capture is discarded; one
 * that the program gave stays the program's. */
void vgs_graph_capture_abandon(struct vgs_stream *stream);

#endif
