/* Captures. The graph's object exists from the beginning of a capture, because the program may ask for the graph and
 * its nodes while it grows. */
#include "vgs_graph_capture.h"
#include "vgs_api.h"
#include "vgs_capture.h"
#include "vgs_enter.h"
#include "vgs_graph.h"
#include "vgs_graph_node.h"
#include "vgs_graph_part.h"
#include "vgs_log.h"
#include "vgs_mirror.h"
#include "vgs_stream.h"
#include <stdlib.h>
#include <string.h>

enum { MODE_MAX = 2, DEPENDENCIES_MAX = 4096 };

CUresult vgs_cuStreamBeginCapture(CUstream hStream) { return vgs_cuStreamBeginCapture_v2(hStream, 0); }

CUresult vgs_graph_capture_check(const struct vgs_stream *stream, int mode) {
  if (mode < 0 || mode > MODE_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  if (!stream)
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; /* oracle: the legacy stream cannot be captured */
  return vgs_capture_status(stream->capture) ? CUDA_ERROR_ILLEGAL_STATE : vgs_mirror_before_capture(stream);
}

CUresult vgs_graph_capture_begin(struct vgs_stream *stream, struct vgs_graph *graph, int mode, bool owned) {
  uint64_t capture = vgs_capture_begin(stream, mode);
  if (!capture)
    return CUDA_ERROR_OUT_OF_MEMORY;
  if (graph) {
    graph->unnamed = graph->growing = true;
    vgs_capture_set_graph(capture, vgs_object_handle(graph), owned);
  }
  return CUDA_SUCCESS;
}

/* Drivers before 12.3 cannot capture into an existing graph: there the object is created at the end of the capture. */
CUresult vgs_cuStreamBeginCapture_v2(CUstream hStream, int mode) {
  uint32_t id;
  struct vgs_stream *stream;
  CUresult result = vgs_stream_find(hStream, &id, &stream);
  if (!result)
    result = vgs_graph_capture_check(stream, mode);
  struct vgs_graph *graph = result ? NULL : vgs_object_create(VGW_KIND_GRAPH, 0);
  if (result || !graph)
    return result ? result : CUDA_ERROR_OUT_OF_MEMORY;
  result = vgs_send_vgpuCaptureBegin(id, graph->object.id);
  if (result) {
    vgs_object_destroy(graph);
    graph = NULL;
  }
  if (result == CUDA_ERROR_NOT_SUPPORTED)
    result = vgs_send_cuStreamBeginCapture_v2(id, mode);
  return result ? result : vgs_graph_capture_begin(stream, graph, mode, true);
}

/* The end of a capture whose graph has an object already. The object is destroyed only if the capture created it and is
 * lost. */
static CUresult end_growing(uint32_t id, struct vgs_graph *graph, bool owned, bool lost, struct vgs_works *works) {
  graph->growing = false;
  CUresult result = vgs_send_vgpuCaptureEnd(id);
  if (!result && lost)
    result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!vgs_works_add_all(&vgs_graph_outermost(graph)->works, works) && !result)
    result = CUDA_ERROR_OUT_OF_MEMORY;
  vgs_works_clear(works);
  if (result && owned) {
    uint32_t graph_id = graph->object.id;
    vgs_graph_destroy_parts(graph);
    vgs_object_destroy(graph);
    vgs_send_cuGraphDestroy(graph_id, false);
  }
  return result;
}

CUresult vgs_cuStreamEndCapture(CUstream hStream, CUgraph *phGraph) {
  uint32_t id;
  struct vgs_stream *stream;
  CUresult result = vgs_stream_find(hStream, &id, &stream);
  if (result)
    return result;
  if (!stream || !vgs_capture_status(stream->capture))
    return CUDA_ERROR_ILLEGAL_STATE;
  if (!stream->capture_origin)
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  bool owned;
  CUgraph handle = vgs_capture_graph(stream->capture, &owned);
  if (!phGraph && (!handle || owned)) /* a capture into the program's own graph returns no new handle */
    return CUDA_ERROR_INVALID_VALUE;
  struct vgs_graph *graph = handle ? vgs_graph_find(handle) : vgs_object_create(VGW_KIND_GRAPH, 0);
  struct vgs_works works;
  if (!graph && !handle)
    return CUDA_ERROR_OUT_OF_MEMORY;
  bool lost = vgs_capture_end(stream->capture, &works) == VGS_CAPTURE_INVALIDATED;
  stream->capture = 0;
  stream->capture_origin = false;
  if (!graph) { /* the program has destroyed it meanwhile */
    vgs_send_vgpuCaptureEnd(id);
    vgs_works_clear(&works);
    result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  } else if (handle) {
    result = end_growing(id, graph, owned, lost, &works);
  } else {
    graph->works = works;
    graph->unnamed = true;
    result = vgs_send_cuStreamEndCapture(id, graph->object.id);
    if (lost && !result) {
      vgs_send_cuGraphDestroy(graph->object.id, false);
      result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    if (result)
      vgs_object_destroy(graph);
  }
  if (phGraph)
    *phGraph = result ? NULL : vgs_object_handle(graph); /* oracle: NULL with the error */
  return result;
}

void vgs_graph_capture_abandon(struct vgs_stream *stream) {
  bool owned;
  CUgraph graph = NULL, given = vgs_capture_graph(stream->capture, &owned);
  if (stream->capture_origin && vgs_capture_status(stream->capture) &&
      !vgs_cuStreamEndCapture(vgs_object_handle(stream), &graph) && (owned || !given))
    vgs_cuGraphDestroy(graph);
}

CUresult vgs_cuStreamGetCaptureInfo(CUstream hStream, int *captureStatus_out, uint64_t *id_out) {
  uint32_t id;
  struct vgs_stream *stream;
  CUresult result = vgs_cuStreamIsCapturing(hStream, captureStatus_out);
  if (!result && *captureStatus_out == VGS_CAPTURE_ACTIVE && id_out && !vgs_stream_find(hStream, &id, &stream))
    *id_out = stream->capture;
  return result;
}

/* The nodes that the stream's next node will depend on. The arrays are valid until the thread's next call of this. */
static CUresult dependencies_of(uint32_t stream, struct vgs_graph *graph, const CUgraphNode **nodes,
                                const CUgraphEdgeData **edges, size_t *count) {
  static _Thread_local CUgraphNode found[DEPENDENCIES_MAX];
  static _Thread_local CUgraphEdgeData data[DEPENDENCIES_MAX];
  uint32_t ids[DEPENDENCIES_MAX];
  *count = DEPENDENCIES_MAX;
  CUresult result = vgs_graph_name_nodes(graph);
  if (!result)
    result = vgs_send_vgpuCaptureDependencies(stream, graph->object.id, ids, data, count);
  if (result)
    return result;
  if (*count > DEPENDENCIES_MAX)
    return CUDA_ERROR_OUT_OF_MEMORY;
  for (size_t i = 0; i < *count; i++) {
    void *node = vgs_object_at(VGW_KIND_GRAPH_NODE, ids[i]);
    if (!node)
      return CUDA_ERROR_UNKNOWN;
    found[i] = vgs_object_handle(node);
  }
  *nodes = found;
  *edges = data;
  return CUDA_SUCCESS;
}

CUresult vgs_cuStreamGetCaptureInfo_v2(CUstream hStream, int *captureStatus_out, uint64_t *id_out, CUgraph *graph_out,
                                       const CUgraphNode **dependencies_out, size_t *numDependencies_out) {
  return vgs_cuStreamGetCaptureInfo_v3(hStream, captureStatus_out, id_out, graph_out, dependencies_out, NULL,
                                       numDependencies_out);
}

/* The manual: edge data is asked for with the nodes alone, and nodes whose edges have data are not told without it. */
CUresult vgs_cuStreamGetCaptureInfo_v3(CUstream hStream, int *captureStatus_out, uint64_t *id_out, CUgraph *graph_out,
                                       const CUgraphNode **dependencies_out, const void **edgeData_out,
                                       size_t *numDependencies_out) {
  static bool named;
  uint32_t id;
  struct vgs_stream *stream;
  bool owned;
  int status;
  uint64_t capture = 0;
  if (!captureStatus_out || (edgeData_out && !dependencies_out))
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = vgs_cuStreamGetCaptureInfo(hStream, &status, &capture);
  if (!result && status == VGS_CAPTURE_ACTIVE && (graph_out || dependencies_out || numDependencies_out)) {
    const CUgraphNode *nodes = NULL;
    const CUgraphEdgeData *edges = NULL;
    size_t count = 0;
    CUgraph handle = vgs_capture_graph(capture, &owned);
    struct vgs_graph *graph = handle ? vgs_graph_find(handle) : NULL;
    if (!graph)
      return vgs_unimplemented("the graph of a capture that is going on, with a driver before 12.3", &named);
    result = vgs_stream_find(hStream, &id, &stream);
    if (!result && (dependencies_out || numDependencies_out))
      result = dependencies_of(id, graph, &nodes, &edges, &count);
    if (!result && dependencies_out && !edgeData_out && vgs_edges_have_data(edges, count))
      result = CUDA_ERROR_LOSSY_QUERY;
    if (result)
      return result;
    if (graph_out)
      *graph_out = handle;
    if (dependencies_out)
      *dependencies_out = nodes;
    if (edgeData_out)
      *edgeData_out = edges;
    if (numDependencies_out)
      *numDependencies_out = count;
  }
  if (result)
    return result;
  *captureStatus_out = status;
  if (id_out && status == VGS_CAPTURE_ACTIVE)
    *id_out = capture;
  return CUDA_SUCCESS;
}
