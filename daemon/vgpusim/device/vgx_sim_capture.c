/* Stream capture: what would be queued becomes a node of a graph.
 *
 * Each stream that takes part, and each event recorded in one, has a frontier: the nodes that come directly before what
 * follows it. A captured operation depends on its stream's frontier and becomes it; recording an event copies the
 * frontier, waiting for the event unites two. The rules of capture modes are the client's business.
 *
 * Locking: the runtime lock. */
#include "vgx_sim_capture.h"

#include <stdlib.h>
#include <string.h>

#include "vgx_sim_graph.h"
#include "vgx_sim_graph_attribute.h"
#include "vgx_sim_graph_edge.h"
#include "vgx_sim_runtime.h"

enum { MODE_RELAXED = 2 };

struct vgx_sim_capture {
  uint32_t refs; /* the streams and events that name it */
  bool ended, lost;
  bool given;    /* the program owns the graph, so it is kept when the capture is lost */
  CUgraph graph; /* NULL once ended */
  CUstream origin;
};

static uint32_t active_count; /* captures that have begun and not ended */

static bool is_active(const struct vgx_sim_captured *c) { return c->capture && !c->capture->ended; }

bool vgx_sim_is_capturing_locked(CUstream stream) { return is_active(&stream->captured); }

/* The legacy stream encompasses the blocking streams of its context, so it is unusable while one of them captures. */
static CUresult check_legacy(CUstream stream, bool invalidate) {
  CUcontext ctx = stream->ctx;
  CUresult result = CUDA_SUCCESS;
  if (!active_count || stream != &ctx->legacy)
    return CUDA_SUCCESS;
  for (CUstream s = &ctx->per_thread; s; s = s == &ctx->per_thread ? ctx->streams : s->next)
    if (!(s->flags & CU_STREAM_NON_BLOCKING) && is_active(&s->captured)) {
      s->captured.capture->lost |= invalidate;
      result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
  return result;
}

CUresult vgx_sim_capture_check_legacy_locked(CUstream stream) { return check_legacy(stream, true); }

void vgx_sim_captured_clear_locked(struct vgx_sim_captured *c) {
  if (c->capture && --c->capture->refs == 0) {
    active_count -= !c->capture->ended;
    if (c->capture->graph && c->capture->given)
      c->capture->graph->capturing = false;
    free(c->capture);
  }
  free(c->told);
  free(c->frontier);
  free(c->edges);
  *c = (struct vgx_sim_captured){0};
}

/* Unite `c`'s frontier with `other`'s, of the same capture. Edges from nodes of both keep their data. */
static CUresult unite(struct vgx_sim_captured *c, const struct vgx_sim_captured *other) {
  size_t most = (size_t)c->count + other->count + 1;
  uint32_t *frontier = malloc(most * sizeof *frontier);
  CUgraphEdgeData *edges = malloc(most * sizeof *edges);
  if (!frontier || !edges) {
    free(frontier);
    free(edges);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  uint32_t count = c->count;
  if (count) {
    memcpy(frontier, c->frontier, count * sizeof *frontier);
    memcpy(edges, c->edges, count * sizeof *edges);
  }
  for (uint32_t i = 0; i < other->count; i++) {
    uint32_t k = 0;
    while (k < c->count && c->frontier[k] != other->frontier[i])
      k++;
    if (k == c->count) {
      edges[count] = other->edges[i];
      frontier[count++] = other->frontier[i];
    }
  }
  free(c->frontier);
  free(c->edges);
  c->frontier = frontier;
  c->edges = edges;
  c->count = count;
  return CUDA_SUCCESS;
}

/* Let `c` join the capture of `other`. */
static CUresult follow(struct vgx_sim_captured *c, const struct vgx_sim_captured *other) {
  vgx_sim_captured_clear_locked(c);
  CUresult result = unite(c, other);
  if (result == CUDA_SUCCESS) {
    c->capture = other->capture;
    c->capture->refs++;
  }
  return result;
}

CUresult vgx_sim_capture_lost_locked(CUstream stream, CUresult result) {
  stream->captured.capture->lost = true;
  return result;
}

CUresult vgx_sim_capture_forbid(CUstream stream, CUresult result) {
  vgx_sim_lock();
  result = is_active(&stream->captured) ? vgx_sim_capture_lost_locked(stream, result)
                                        : vgx_sim_capture_check_legacy_locked(stream);
  vgx_sim_unlock();
  return result;
}

/* Add a node that depends on the stream's frontier and becomes its new frontier. */
static CUresult append(struct vgx_sim_captured *c, uint32_t type, struct vgx_sim_work *work, CUgraphNode *node) {
  for (uint32_t i = 0; i < c->count; i++)
    if (!vgx_sim_edge_is_sound(c->capture->graph->nodes[c->frontier[i]], type, &c->edges[i]))
      return CUDA_ERROR_INVALID_VALUE;
  uint32_t *frontier = malloc(sizeof *frontier);
  CUgraphEdgeData *edges = calloc(1, sizeof *edges);
  CUresult result = frontier && edges
                        ? vgx_sim_graph_add_locked(c->capture->graph, type, work, c->frontier, c->count, node)
                        : CUDA_ERROR_OUT_OF_MEMORY;
  if (result != CUDA_SUCCESS) {
    free(frontier);
    free(edges);
    return result;
  }
  if (c->count)
    memcpy((*node)->edges, c->edges, c->count * sizeof *edges);
  free(c->frontier);
  free(c->edges);
  (*node)->captured = true;
  *frontier = (*node)->index;
  c->frontier = frontier;
  c->edges = edges;
  c->count = 1;
  return CUDA_SUCCESS;
}

CUresult vgx_sim_capture_child_locked(CUstream stream, CUgraph child) {
  struct vgx_sim_captured *c = &stream->captured;
  CUgraphNode node;
  if (c->capture->lost)
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  CUresult result = append(c, VGX_SIM_NODE_GRAPH, NULL, &node);
  if (result == CUDA_SUCCESS && (result = vgx_sim_graph_embed_locked(node, child)) != CUDA_SUCCESS) {
    node->type = VGX_SIM_NODE_EMPTY;
    c->capture->lost = true;
  }
  return result;
}

CUresult vgx_sim_capture_locked(CUstream stream, struct vgx_sim_op *op) {
  struct vgx_sim_captured *c = &stream->captured;
  CUgraphNode node;
  if (c->capture->lost)
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (op->kind == VGX_SIM_OP_ONCE) {
    c->capture->lost = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  struct vgx_sim_work *work = malloc(sizeof *work);
  if (!work)
    return CUDA_ERROR_OUT_OF_MEMORY;
  *work = (struct vgx_sim_work){.refs = 1, .ctx = stream->ctx, .op = op};
  CUresult result = append(c, (uint32_t)op->kind - 1, work, &node);
  if (result != CUDA_SUCCESS)
    free(work);
  else if (op->kind == VGX_SIM_OP_KERNEL)
    vgx_sim_attributes_of_stream(node, stream);
  return result;
}

CUresult vgx_sim_capture_record_locked(CUstream stream, CUevent event) {
  if (stream->captured.capture->lost)
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  return follow(&event->captured, &stream->captured);
}

CUresult vgx_sim_capture_wait_locked(CUstream stream, CUevent event, bool *handled) {
  struct vgx_sim_captured *c = &stream->captured, *other = &event->captured;
  *handled = is_active(c) || is_active(other);
  if (!*handled)
    return CUDA_SUCCESS;
  if (!is_active(other))
    return vgx_sim_capture_lost_locked(stream, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  if (other->capture->lost || (is_active(c) && c->capture->lost))
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (is_active(c) && c->capture != other->capture) {
    c->capture->lost = other->capture->lost = true;
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  if (is_active(c))
    return unite(c, other);
  if (stream == &stream->ctx->legacy) {
    other->capture->lost = true;
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  return follow(c, other);
}

CUresult vgx_sim_capture_event_locked(CUevent event) {
  if (!is_active(&event->captured))
    return CUDA_SUCCESS;
  event->captured.capture->lost = true;
  return CUDA_ERROR_CAPTURED_EVENT;
}

/* Nodes of a graph, and data of the edges from them (NULL: none), as a frontier, which is the caller's to clear.
 * Runtime lock held. */
static CUresult frontier_of(CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *data, size_t count,
                            struct vgx_sim_captured *made) {
  if (count > VGX_SIM_GRAPH_NODES_MAX || (count && !nodes))
    return CUDA_ERROR_INVALID_VALUE;
  made->frontier = malloc((count + 1) * sizeof *made->frontier);
  made->edges = calloc(count + 1, sizeof *made->edges);
  if (!made->frontier || !made->edges)
    return CUDA_ERROR_OUT_OF_MEMORY;
  for (size_t i = 0; i < count; i++) {
    if (!vgx_sim_is_node(nodes[i]) || nodes[i]->graph != graph ||
        (data && !vgx_sim_edge_is_sound(nodes[i], VGX_SIM_NODE_KERNEL, &data[i])))
      return CUDA_ERROR_INVALID_VALUE;
    if (data)
      made->edges[i] = data[i];
    made->frontier[made->count++] = nodes[i]->index;
  }
  return CUDA_SUCCESS;
}

/* Capture a stream into a graph, after some of its nodes. */
static CUresult begin(CUstream stream, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *data,
                      size_t count, bool given) {
  struct vgx_sim_capture *capture = calloc(1, sizeof *capture);
  struct vgx_sim_captured fresh = {0};
  if (!capture)
    return CUDA_ERROR_OUT_OF_MEMORY;
  *capture = (struct vgx_sim_capture){.refs = 1, .given = given, .graph = graph, .origin = stream};
  vgx_sim_lock();
  CUresult result = is_active(&stream->captured) ? CUDA_ERROR_ILLEGAL_STATE : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS && (graph->capturing || (graph->owner && !graph->owner->body_count)))
    result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS)
    result = frontier_of(graph, nodes, data, count, &fresh);
  if (result == CUDA_SUCCESS) {
    vgx_sim_captured_clear_locked(&stream->captured);
    fresh.capture = capture;
    stream->captured = fresh;
    graph->capturing = given;
    active_count++;
  }
  vgx_sim_unlock();
  if (result != CUDA_SUCCESS) {
    free(fresh.frontier);
    free(fresh.edges);
    free(capture);
  }
  return result;
}

CUresult vgx_sim_cuStreamBeginCapture_v2(CUstream hStream, int mode) {
  CUstream stream;
  CUresult result = vgx_sim_enter_stream(hStream, NULL, &stream);
  if (result != CUDA_SUCCESS)
    return result;
  if (mode < 0 || mode > MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  if (stream == &stream->ctx->legacy)
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  CUgraph graph = vgx_sim_graph_create();
  result = graph ? begin(stream, graph, NULL, NULL, 0, false) : CUDA_ERROR_OUT_OF_MEMORY;
  if (result != CUDA_SUCCESS)
    vgx_sim_graph_destroy(graph);
  return result;
}

CUresult vgx_sim_cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
                                             const CUgraphEdgeData *dependencyData, size_t numDependencies, int mode) {
  CUstream stream;
  CUresult result = vgx_sim_enter_stream(hStream, NULL, &stream);
  if (result != CUDA_SUCCESS)
    return result;
  if (mode < 0 || mode > MODE_RELAXED || !vgx_sim_is_graph(hGraph))
    return CUDA_ERROR_INVALID_VALUE;
  if (stream == &stream->ctx->legacy)
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return begin(stream, hGraph, dependencies, dependencyData, numDependencies, true);
}

CUresult vgx_sim_cuStreamGetCaptureInfo_v3(CUstream hStream, int *captureStatus_out, uint64_t *id_out,
                                           CUgraph *graph_out, const CUgraphNode **dependencies_out,
                                           const CUgraphEdgeData **edgeData_out, size_t *numDependencies_out) {
  enum { NONE, ACTIVE, INVALIDATED };
  static const CUgraphEdgeData none;
  CUstream stream;
  CUresult result = vgx_sim_enter_stream(hStream, NULL, &stream);
  if (result != CUDA_SUCCESS)
    return result;
  vgx_sim_lock();
  if ((result = check_legacy(stream, false)) != CUDA_SUCCESS) { /* a question leaves the captures as they are */
    vgx_sim_unlock();
    return result;
  }
  struct vgx_sim_captured *c = &stream->captured;
  *captureStatus_out = !is_active(c) ? NONE : c->capture->lost ? INVALIDATED : ACTIVE;
  if (*captureStatus_out == ACTIVE) {
    CUgraphNode *told = realloc(c->told, ((size_t)c->count + 1) * sizeof(CUgraphNode));
    for (uint32_t i = 0; told && i < c->count; i++) {
      told[i] = c->capture->graph->nodes[c->frontier[i]];
      if (!edgeData_out && memcmp(&c->edges[i], &none, sizeof none) != 0)
        result = CUDA_ERROR_LOSSY_QUERY;
    }
    if (told)
      c->told = told;
    else
      result = CUDA_ERROR_OUT_OF_MEMORY;
    *id_out = (uintptr_t)c->capture;
    *graph_out = c->capture->graph;
    *dependencies_out = told;
    *numDependencies_out = c->count;
    if (edgeData_out)
      *edgeData_out = c->edges;
  }
  vgx_sim_unlock();
  return result;
}

CUresult vgx_sim_cuStreamGetCaptureInfo_v2(CUstream hStream, int *captureStatus_out, uint64_t *id_out,
                                           CUgraph *graph_out, const CUgraphNode **dependencies_out,
                                           size_t *numDependencies_out) {
  return vgx_sim_cuStreamGetCaptureInfo_v3(hStream, captureStatus_out, id_out, graph_out, dependencies_out, NULL,
                                           numDependencies_out);
}

CUresult vgx_sim_cuStreamUpdateCaptureDependencies_v2(CUstream hStream, const CUgraphNode *dependencies,
                                                      const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                                      unsigned int flags) {
  enum { SET = 1 };
  CUstream stream;
  CUresult result = vgx_sim_enter_stream(hStream, NULL, &stream);
  if (result != CUDA_SUCCESS)
    return result;
  if (flags > SET)
    return CUDA_ERROR_INVALID_VALUE;
  struct vgx_sim_captured other = {0};
  vgx_sim_lock();
  struct vgx_sim_captured *c = &stream->captured;
  result = is_active(c) ? frontier_of(c->capture->graph, dependencies, dependencyData, numDependencies, &other)
                        : CUDA_ERROR_ILLEGAL_STATE;
  if (result == CUDA_SUCCESS && flags == SET)
    c->count = 0;
  if (result == CUDA_SUCCESS)
    result = unite(c, &other);
  vgx_sim_unlock();
  free(other.frontier);
  free(other.edges);
  return result;
}

CUresult vgx_sim_cuStreamUpdateCaptureDependencies(CUstream hStream, const CUgraphNode *dependencies,
                                                   size_t numDependencies, unsigned int flags) {
  return vgx_sim_cuStreamUpdateCaptureDependencies_v2(hStream, dependencies, NULL, numDependencies, flags);
}

/* Whether every node precedes the frontier, which work of a forked stream that was not joined does not. */
static bool is_joined(CUgraph graph, const struct vgx_sim_captured *c) {
  bool *reached = calloc(graph->count + 1, sizeof *reached);
  if (!reached)
    return false;
  for (uint32_t i = 0; i < c->count; i++)
    reached[c->frontier[i]] = true;
  bool all = true;
  for (uint32_t i = graph->count; i-- > 0;) { /* a captured node depends on earlier ones alone */
    all &= reached[i] || !graph->nodes[i]->captured;
    for (uint32_t k = 0; k < graph->nodes[i]->dependency_count; k++)
      reached[graph->nodes[i]->dependencies[k]] = true;
  }
  free(reached);
  return all;
}

CUresult vgx_sim_cuStreamEndCapture(CUstream hStream, CUgraph *phGraph) {
  CUstream stream;
  CUresult result = vgx_sim_enter_stream(hStream, NULL, &stream);
  if (result != CUDA_SUCCESS)
    return result;
  vgx_sim_lock();
  struct vgx_sim_captured *c = &stream->captured;
  if (!is_active(c))
    result = CUDA_ERROR_ILLEGAL_STATE;
  else if (c->capture->origin != stream)
    result = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  else if (!phGraph)
    result = CUDA_ERROR_INVALID_VALUE;
  if (result != CUDA_SUCCESS) {
    vgx_sim_unlock();
    return result;
  }
  CUgraph graph = c->capture->graph;
  if (c->capture->lost)
    result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  else if (!is_joined(graph, c))
    result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  bool given = c->capture->given;
  c->capture->ended = true;
  active_count--;
  c->capture->graph = NULL;
  graph->capturing = false;
  vgx_sim_captured_clear_locked(c);
  vgx_sim_unlock();
  if (result != CUDA_SUCCESS && !given)
    vgx_sim_graph_destroy(graph);
  *phGraph = result == CUDA_SUCCESS ? graph : NULL; /* NULL with the error, as the driver does */
  return result;
}
