/* The names of calls tell which objects they create and destroy. The first parameter is the address for a new object's
 * handle, or the object to destroy. */
#include "vgs_cupti_resource.h"
#include "vgs_cupti_callback.h"
#include "vgs_cupti_state.h"
#include <stdlib.h>
#include <string.h>

enum event {
  CONTEXT_CREATED = 1,
  CONTEXT_DESTROY_STARTING = 2,
  STREAM_CREATED = 3,
  STREAM_DESTROY_STARTING = 4,
  GRAPH_CREATED = 9,
  GRAPH_DESTROY_STARTING = 10,
  GRAPH_CLONED = 11,
  NODE_CREATED = 13,
  EXEC_CREATED = 18,
  EXEC_DESTROY_STARTING = 19,
  NODE_CLONED = 20,
};

/* CUpti_ResourceData, and CUpti_GraphData, to which its descriptor points for graphs. */
struct resource {
  CUcontext context;
  CUstream stream;
  void *descriptor;
};

struct graph_data {
  CUgraph graph, original_graph;
  CUgraphNode node, original_node;
  uint32_t node_type;
  CUgraphNode dependency;
  CUgraphExec exec;
};
_Static_assert(sizeof(struct graph_data) == 56, "CUpti_GraphData");

bool vgs_cupti_resource_is_seen(uint32_t id) {
  return (id >= CONTEXT_CREATED && id <= STREAM_DESTROY_STARTING) || (id >= GRAPH_CREATED && id <= GRAPH_CLONED) ||
         id == NODE_CREATED || (id >= EXEC_CREATED && id <= NODE_CLONED);
}

static bool begins(const struct vgs_api_call *call, const char *with) {
  return !strncmp(call->name, with, strlen(with));
}

static void tell(enum event event, CUcontext context, CUstream stream) {
  struct resource data = {.context = context, .stream = stream};
  vgs_cupti_call_about(VGS_DOMAIN_RESOURCE, event, &data);
}

static void tell_graph(enum event event, struct graph_data graph) {
  struct resource data = {.context = vgs_cupti_driver()->current(), .descriptor = &graph};
  vgs_cupti_call_about(VGS_DOMAIN_RESOURCE, event, &data);
}

void vgs_cupti_resources_before(const struct vgs_api_call *call) {
  void *const *params = call->params;
  if (call->domain != VGS_API_DRIVER)
    return;
  if (begins(call, "cuCtxDestroy"))
    tell(CONTEXT_DESTROY_STARTING, params[0], NULL);
  else if (begins(call, "cuStreamDestroy"))
    tell(STREAM_DESTROY_STARTING, vgs_cupti_driver()->current(), params[0]);
  else if (!strcmp(call->name, "cuGraphDestroy"))
    tell_graph(GRAPH_DESTROY_STARTING, (struct graph_data){.graph = params[0]});
  else if (begins(call, "cuGraphExecDestroy"))
    tell_graph(EXEC_DESTROY_STARTING, (struct graph_data){.exec = params[0]});
}

static uint32_t type_of(CUgraphNode node) { return vgs_cupti_driver()->node_type(node); }

/* An executable graph's nodes have the numbers of the graph's nodes from which they are made. */
static void tell_nodes(CUgraph graph, CUgraphExec exec) {
  size_t count = 0;
  CUgraphNode *nodes = vgs_cupti_driver()->nodes(graph, &count);
  for (size_t i = 0; i < count; i++)
    tell_graph(NODE_CLONED, (struct graph_data){.graph = graph,
                                                .original_graph = graph,
                                                .node = nodes[i],
                                                .original_node = nodes[i],
                                                .node_type = type_of(nodes[i]),
                                                .exec = exec});
  free(nodes);
}

static void graphs_after(const struct vgs_api_call *call) {
  void **const *params = call->params;
  void *made = begins(call, "cuStreamEndCapture") ? *params[1] : *params[0];
  void *second = ((void *const *)call->params)[1];
  if (begins(call, "cuGraphCreate") || begins(call, "cuStreamEndCapture")) {
    tell_graph(GRAPH_CREATED, (struct graph_data){.graph = made});
  } else if (begins(call, "cuGraphClone")) {
    tell_graph(GRAPH_CLONED, (struct graph_data){.graph = made, .original_graph = second});
  } else if (begins(call, "cuGraphAdd")) {
    tell_graph(NODE_CREATED, (struct graph_data){.graph = second, .node = made, .node_type = type_of(made)});
  } else {
    tell_graph(EXEC_CREATED, (struct graph_data){.graph = second, .exec = made});
    if (vgs_cupti_wants_event(VGS_DOMAIN_RESOURCE, NODE_CLONED))
      tell_nodes(second, made);
  }
}

static bool makes_graph(const struct vgs_api_call *call) {
  if (begins(call, "cuGraphAddDependencies"))
    return false;
  return begins(call, "cuGraphCreate") || begins(call, "cuStreamEndCapture") || begins(call, "cuGraphClone") ||
         begins(call, "cuGraphAdd") || begins(call, "cuGraphInstantiate");
}

void vgs_cupti_resources_after(const struct vgs_api_call *call, int result) {
  void **const *params = call->params;
  if (result || call->domain != VGS_API_DRIVER)
    return;
  if (begins(call, "cuCtxCreate"))
    tell(CONTEXT_CREATED, *params[0], NULL);
  else if (begins(call, "cuDevicePrimaryCtxRetain") && vgs_cupti_driver()->is_new(*params[0]))
    tell(CONTEXT_CREATED, *params[0], NULL);
  else if (begins(call, "cuStreamCreate"))
    tell(STREAM_CREATED, vgs_cupti_driver()->current(), *params[0]);
  else if (makes_graph(call))
    graphs_after(call);
}
