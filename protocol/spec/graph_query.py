"""Queries of graphs and nodes, nodes of any type through one function, and edges."""

from protocol.gen.dsl import (
    EVENT,
    GRAPH,
    GRAPH_EXEC,
    GRAPH_NODE,
    I32,
    INIT,
    SIZE,
    STREAM,
    U32,
    WAITING,
    bytes_out,
    count,
    fn,
    handle,
    handles_in,
    handles_out,
    host_only,
    out,
    out_handle,
    ptr,
    struct_in,
    struct_out,
    val,
)
from protocol.spec.graph_node import DEPENDENCIES, NEW

EDGES = 1 << 18
NAMED_GRAPH = handle("hGraph", GRAPH, ready="vgs_graph_name_nodes")
NODE = handle("hNode", GRAPH_NODE)
EXEC = handle("hGraphExec", GRAPH_EXEC)
EDGE_DATA = ptr("edgeData", "CUgraphEdgeData *")
PARAMS = ptr("nodeParams", "CUgraphNodeParams *")
NODE_ARG = ptr("hNode", "CUgraphNode")

# Edges.
fn(
    "cuGraphGetEdges",
    [
        NAMED_GRAPH,
        handles_out("from", GRAPH_NODE, "numEdges", cap=EDGES),
        handles_out("to", GRAPH_NODE, "numEdges", cap=EDGES),
        count("numEdges", SIZE),
    ],
    WAITING,
    need=INIT,
    doc="All edges of a graph.",
)
fn(
    "cuGraphGetEdges_v2",
    [
        ptr("hGraph", "CUgraph"),
        ptr("from", "CUgraphNode *"),
        ptr("to", "CUgraphNode *"),
        EDGE_DATA,
        ptr("numEdges", "size_t *"),
    ],
    need=INIT,
    doc="With edge data, all of it 0: no other edges can be made.",
)
fn(
    "cuGraphGetRootNodes",
    [NAMED_GRAPH, handles_out("rootNodes", GRAPH_NODE, "numRootNodes", cap=EDGES), count("numRootNodes", SIZE)],
    WAITING,
    need=INIT,
    doc="The nodes that depend on none.",
)
for name, nodes, number in (
    ("cuGraphNodeGetDependencies", "dependencies", "numDependencies"),
    ("cuGraphNodeGetDependentNodes", "dependentNodes", "numDependentNodes"),
):
    fn(
        name,
        [NODE, handles_out(nodes, GRAPH_NODE, number, cap=EDGES), count(number, SIZE)],
        WAITING,
        need=INIT,
        doc="A node's neighbours in its graph.",
    )
    fn(
        f"{name}_v2",
        [NODE_ARG, ptr(nodes, "CUgraphNode *"), EDGE_DATA, ptr(number, "size_t *")],
        need=INIT,
        doc="With edge data, all of it 0.",
    )
fn(
    "cuGraphRemoveDependencies",
    [
        handle("hGraph", GRAPH),
        handles_in("from", GRAPH_NODE, "numDependencies", cap=EDGES),
        handles_in("to", GRAPH_NODE, "numDependencies", cap=EDGES),
        val("numDependencies", SIZE),
    ],
    WAITING,
    need=INIT,
    doc="Take edges away.",
)
fn(
    "cuGraphRemoveDependencies_v2",
    [
        ptr("hGraph", "CUgraph"),
        ptr("from", "const CUgraphNode *"),
        ptr("to", "const CUgraphNode *"),
        ptr("edgeData", "const CUgraphEdgeData *"),
        val("numDependencies", SIZE),
    ],
    need=INIT,
    doc="With edge data, which must be 0.",
)

# Nodes of any type.
for version, data in (("", []), ("_v2", [ptr("dependencyData", "const CUgraphEdgeData *")])):
    fn(
        f"cuGraphAddNode{version}",
        [
            ptr("phGraphNode", "CUgraphNode *"),
            ptr("hGraph", "CUgraph"),
            ptr("dependencies", "const CUgraphNode *"),
            *data,
            val("numDependencies", SIZE),
            PARAMS,
        ],
        doc="A node of the type that its parameters name.",
    )
fn("cuGraphNodeSetParams", [NODE_ARG, PARAMS], doc="A node's parameters, of its type.")
fn(
    "cuGraphExecNodeSetParams",
    [ptr("hGraphExec", "CUgraphExec"), NODE_ARG, PARAMS],
    doc="For later launches.",
)
fn("cuGraphAddEventRecordNode", [*NEW, handle("event", EVENT)], WAITING, simulator=False, doc="Record an event.")
fn("cuGraphAddEventWaitNode", [*NEW, handle("event", EVENT)], WAITING, simulator=False, doc="Wait for an event.")
fn(
    "cuGraphMemsetNodeGetParams",
    [NODE, struct_out("nodeParams", "CUDA_MEMSET_NODE_PARAMS")],
    WAITING,
    need=INIT,
    doc="What a fill was given.",
)
fn(
    "cuGraphMemsetNodeSetParams",
    [NODE, struct_in("nodeParams", "CUDA_MEMSET_NODE_PARAMS")],
    WAITING,
    doc="For graphs made executable later.",
)
fn(
    "cuGraphKernelNodeGetParams_v2",
    [NODE_ARG, ptr("nodeParams", "CUDA_KERNEL_NODE_PARAMS_v2 *")],
    WAITING,
    guest="custom",
    host="custom",
    wire=[
        NODE,
        *(out(name, U32) for name in ("kind", "object", "gridDimX", "gridDimY", "gridDimZ")),
        *(out(name, U32) for name in ("blockDimX", "blockDimY", "blockDimZ", "sharedMemBytes")),
        val("capacity", U32),
        bytes_out("params", "capacity", cap=32768),
    ],
    doc="What a kernel's node was given; of captured ones the worker knows.",
)
fn(
    "cuGraphKernelNodeGetParams",
    [NODE_ARG, ptr("nodeParams", "CUDA_KERNEL_NODE_PARAMS_v1 *")],
    doc="The older, shorter parameters.",
)
fn(
    "cuGraphDebugDotPrint",
    [ptr("hGraph", "CUgraph"), ptr("path", "const char *"), val("flags", U32)],
    need=INIT,
    doc="Nodes and edges of a graph, in Graphviz's language.",
)

# The graph of a capture that is going on.
fn(
    "vgpuCaptureBegin",
    [handle("hStream", STREAM), out_handle("graph", GRAPH)],
    WAITING,
    doc="Record a stream's work into a new graph, whose handle the client has from the beginning.",
)
fn(
    "vgpuCaptureEnd",
    [handle("hStream", STREAM)],
    WAITING,
    calls="cuStreamEndCapture",
    given=["hStream", "&(CUgraph){NULL}"],  # the graph is the one that the client knows
    doc="The end of a capture by vgpuCaptureBegin or cuStreamBeginCaptureToGraph.",
)
fn(
    "vgpuCaptureDependencies",
    [
        handle("hStream", STREAM),
        handle("hGraph", GRAPH),
        out("count", SIZE),
        val("capacity", U32),
        bytes_out("nodes", "capacity"),
    ],
    WAITING,
    doc="The nodes (u32 ids) that the next one captured in the stream will depend on.",
)
fn(
    "cuStreamBeginCaptureToGraph",
    [
        handle("hStream", STREAM),
        handle("hGraph", GRAPH, ready="vgs_graph_name_nodes"),
        *DEPENDENCIES[:1],
        ptr("dependencyData", "const CUgraphEdgeData *"),
        *DEPENDENCIES[1:],
        val("mode", I32),
    ],
    WAITING,
    wire=[handle("hStream", STREAM), handle("hGraph", GRAPH, ready="vgs_graph_name_nodes"), *DEPENDENCIES],
    checks=[
        "vgs_graph_capture_check(hStream_object, mode)",
        "vgs_graph_check_edges(dependencyData, numDependencies)",
    ],
    client_after="result = vgs_graph_capture_begin(hStream_object, hGraph_object, mode, false)",
    given=["hStream", "hGraph", "dependencies", "NULL", "numDependencies", "2 /* relaxed, as in graph.py */"],
    doc="Record a stream's work into a graph that there is.",
)
fn(
    "cuStreamUpdateCaptureDependencies",
    [
        handle("hStream", STREAM),
        handles_in("dependencies", GRAPH_NODE, "numDependencies", cap=EDGES),
        val("numDependencies", SIZE),
        val("flags", U32, most=1),
    ],
    WAITING,
    doc="Other nodes for the next one captured to depend on: also (0) or instead (1).",
)
fn(
    "cuStreamUpdateCaptureDependencies_v2",
    [
        ptr("hStream", "CUstream"),
        ptr("dependencies", "CUgraphNode *"),
        ptr("dependencyData", "const CUgraphEdgeData *"),
        val("numDependencies", SIZE),
        val("flags", U32),
    ],
    doc="With edge data, which must be 0.",
)
host_only(
    "cuStreamGetCaptureInfo_v2",
    [
        ptr("hStream", "CUstream"),
        ptr("captureStatus_out", "int *"),
        ptr("id_out", "uint64_t *"),
        ptr("graph_out", "CUgraph *"),
        ptr("dependencies_out", "const CUgraphNode **"),
        ptr("numDependencies_out", "size_t *"),
    ],
    doc="For vgpuCaptureDependencies.",
)
