"""Queries of graphs and nodes, nodes of any type through one function, and edges."""

from protocol.gen.dsl import (
    EVENT,
    GRAPH,
    GRAPH_EXEC,
    GRAPH_NODE,
    I32,
    INIT,
    NOT_SUPPORTED,
    SIZE,
    STREAM,
    U32,
    WAITING,
    array_in,
    array_out,
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
    sent,
    struct_in,
    struct_out,
    val,
)
from protocol.spec.copy import EITHER, OUT_OF_REACH, SIDES
from protocol.spec.graph_node import DEPENDENCIES, NEW

EDGES = 1 << 18
EDGES_WITH_DATA = 1 << 15
NAMED_GRAPH = handle("hGraph", GRAPH, ready="vgs_graph_name_nodes")
NODE = handle("hNode", GRAPH_NODE)
EXEC = handle("hGraphExec", GRAPH_EXEC)
EDGE = "CUgraphEdgeData"
# What the client does with the event of a node, by what the node does: see vgs_event_of_graph.
MARK = {"Record": "vgs_event_of_graph(event_object)", "Wait": ""}
PARAMS = ptr("nodeParams", "CUgraphNodeParams *")
NODE_ARG = ptr("hNode", "CUgraphNode")


def all_fit(number: str) -> str:
    """C for an answer that may be cut short because a record holds no more."""
    cut = f"{number}_told == {EDGES_WITH_DATA} && {number}_room > {EDGES_WITH_DATA}"
    return f"if ({cut}) result = {NOT_SUPPORTED}"


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
        NAMED_GRAPH,
        handles_out("from", GRAPH_NODE, "numEdges", cap=EDGES_WITH_DATA),
        handles_out("to", GRAPH_NODE, "numEdges", cap=EDGES_WITH_DATA),
        array_out("edgeData", EDGE, "numEdges", cap=EDGES_WITH_DATA),
        count("numEdges", SIZE),
    ],
    WAITING,
    need=INIT,
    answers={"!edgeData": "vgs_cuGraphGetEdges(hGraph, from, to, numEdges)"},
    client_after=all_fit("numEdges"),
    doc="With edge data: which port of a node another waits for, and how.",
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
        [
            NODE,
            handles_out(nodes, GRAPH_NODE, number, cap=EDGES_WITH_DATA),
            array_out("edgeData", EDGE, number, cap=EDGES_WITH_DATA),
            count(number, SIZE),
        ],
        WAITING,
        need=INIT,
        answers={"!edgeData": f"vgs_{name}(hNode, {nodes}, {number})"},
        client_after=all_fit(number),
        doc="With edge data.",
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
# Edges without data use the older functions, which every driver has.
EDGES_IN = [
    handle("hGraph", GRAPH),
    handles_in("from", GRAPH_NODE, "numDependencies", cap=EDGES_WITH_DATA),
    handles_in("to", GRAPH_NODE, "numDependencies", cap=EDGES_WITH_DATA),
]
for verb in ("Add", "Remove"):
    fn(
        f"cuGraph{verb}Dependencies_v2",
        [*EDGES_IN, ptr("edgeData", f"const {EDGE} *"), val("numDependencies", SIZE)],
        WAITING,
        need=INIT,
        wire=[
            *EDGES_IN,
            sent(array_in("edgeData", EDGE, "numDependencies", cap=EDGES_WITH_DATA), "edgeData"),
            val("numDependencies", SIZE),
        ],
        answers={
            "!vgs_edges_have_data(edgeData, numDependencies)": (
                f"vgs_cuGraph{verb}Dependencies(hGraph, from, to, numDependencies)"
            )
        },
        given=["hGraph", "from", "to", "edgeData", "numDependencies"],
        doc="With edge data: which port of a node another waits for, and how.",
    )

# Nodes of any type.
for version, data in (("", []), ("_v2", [ptr("dependencyData", f"const {EDGE} *")])):
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
for what, mark in MARK.items():
    fn(
        f"cuGraphAddEvent{what}Node",
        [*NEW, handle("event", EVENT)],
        WAITING,
        client_before=mark,
        doc="Record an event." if what == "Record" else "Wait for an event.",
    )
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
# Copy nodes. If the worker does not reach the memory, the node is a child graph of two halves, and the client knows the
# copy that the number of the halves' host function stands for. With a driver before 12.3, a captured one is two nodes.
SPLIT = {"vgx_handle_is_split(s, VGW_KIND_GRAPH_NODE, req->hNode)": NOT_SUPPORTED}
fn(
    "cuGraphMemcpyNodeGetParams",
    [NODE, struct_out("nodeParams", "CUDA_MEMCPY3D")],
    WAITING,
    need=INIT,
    wire=[NODE, struct_out("nodeParams", "CUDA_MEMCPY3D"), out("callback", U32)],
    answers={"hNode_object->copy": "(*nodeParams = *hNode_object->copy, CUDA_SUCCESS)"},
    client_after="result = vgs_graph_copy_found(callback_told, nodeParams)",
    worker_answers=SPLIT,
    worker="vgx_graph_copy_params(s, hNode, &nodeParams, &callback)",
    doc="What a copy was given: kept here, or of a captured one what the worker knows.",
)
fn(
    "cuGraphMemcpyNodeSetParams",
    [NODE, ptr("nodeParams", "const CUDA_MEMCPY3D *")],
    WAITING,
    guest="custom",
    wire=[NODE, *SIDES],
    worker_answers=SPLIT | OUT_OF_REACH,
    given=["hNode", EITHER],
    doc="For graphs made executable later.",
)
fn(
    "vgpuGraphSetHalves",
    [NODE, val("callback", U32), val("to_host", U32), *SIDES],
    WAITING,
    violations={"!(req->callback & VGW_CALLBACK_OF_GRAPH)": "a graph's callback without its mark"},
    worker_answers={f"req->width && {condition}": result for condition, result in OUT_OF_REACH.items()},
    worker=f"vgx_graph_set_halves(s, hNode, req->callback, req->width ? {EITHER} : NULL, req->to_host)",
    doc="cuGraphMemcpyNodeSetParams of a copy in halves: the number of the host function, and the device's part.",
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

# The graph of an active capture.
fn(
    "vgpuCaptureBegin",
    [handle("hStream", STREAM), out_handle("graph", GRAPH)],
    WAITING,
    doc="Record a stream's work into a new graph, whose handle the client has from the beginning.",
    group="graphs",
)
fn(
    "vgpuCaptureEnd",
    [handle("hStream", STREAM)],
    WAITING,
    calls="cuStreamEndCapture",
    given=["hStream", "&(CUgraph){NULL}"],  # the client knows the graph already
    alone=True,
    doc="The end of a capture by vgpuCaptureBegin or cuStreamBeginCaptureToGraph.",
)
fn(
    "vgpuCaptureChild",
    [handle("hStream", STREAM), handle("hGraph", GRAPH), handle("childGraph", GRAPH)],
    WAITING,
    worker="vgx_capture_child(s, hStream, hGraph, childGraph)",
    doc="Add a copy of a graph to the stream's capture, as the node that the next one will depend on.",
)
TOLD = 4096  # nodes of an answer
fn(
    "vgpuCaptureDependencies",
    [
        handle("hStream", STREAM),
        handle("hGraph", GRAPH),
        handles_out("nodes", GRAPH_NODE, "count", cap=TOLD),
        array_out("edges", EDGE, "count", cap=TOLD),
        count("count", SIZE),
    ],
    WAITING,
    worker="vgx_capture_dependencies(s, hStream, hGraph, nodes, edges, &count)",
    doc="The nodes that the next one captured in the stream will depend on, and the data of these edges.",
)
INTO = [handle("hStream", STREAM, named=True), NAMED_GRAPH, *DEPENDENCIES]
WITH_EDGES = "req->edge_count && req->edge_count == req->numDependencies ? edges : NULL"
fn(
    "cuStreamBeginCaptureToGraph",
    [*INTO[:3], ptr("dependencyData", f"const {EDGE} *"), *INTO[3:], val("mode", I32)],
    WAITING,
    wire=[
        *INTO,
        sent(val("edge_count", SIZE), "edge_count"),
        sent(array_in("edges", EDGE, "edge_count", cap=EDGES_WITH_DATA), "dependencyData"),
    ],
    client_before="size_t edge_count = vgs_edges_have_data(dependencyData, numDependencies) ? numDependencies : 0",
    checks=["vgs_graph_capture_check(hStream_object, mode)"],
    client_after="result = vgs_graph_capture_begin(hStream_object, hGraph_object, mode, false)",
    given=[
        "hStream", "hGraph", "dependencies", WITH_EDGES, "numDependencies",
        "2 /* relaxed, as in graph.py */",
    ],
    doc="Record a stream's work into a graph that there is.",
    group="graphs",
)  # fmt: skip
NEXT = [handle("hStream", STREAM, named=True), handles_in("dependencies", GRAPH_NODE, "numDependencies", cap=EDGES)]
NEXT_WITH_DATA = [NEXT[0], handles_in("dependencies", GRAPH_NODE, "numDependencies", cap=EDGES_WITH_DATA)]
HOW = [val("numDependencies", SIZE), val("flags", U32, most=1)]
fn(
    "cuStreamUpdateCaptureDependencies",
    [*NEXT, *HOW],
    WAITING,
    doc="Other nodes for the next one captured to depend on: also (0) or instead (1).",
)
fn(
    "cuStreamUpdateCaptureDependencies_v2",
    [*NEXT_WITH_DATA, ptr("dependencyData", f"const {EDGE} *"), *HOW],
    WAITING,
    wire=[
        *NEXT_WITH_DATA,
        sent(array_in("dependencyData", EDGE, "numDependencies", cap=EDGES_WITH_DATA), "dependencyData"),
        *HOW,
    ],
    answers={
        "!vgs_edges_have_data(dependencyData, numDependencies)": (
            "vgs_cuStreamUpdateCaptureDependencies(hStream, dependencies, numDependencies, flags)"
        )
    },
    given=["hStream", "dependencies", "dependencyData", "numDependencies", "flags"],
    doc="With edge data: which port of a node the next one waits for, and how.",
)
CAPTURE_INFO = [
    ptr("hStream", "CUstream"),
    ptr("captureStatus_out", "int *"),
    ptr("id_out", "uint64_t *"),
    ptr("graph_out", "CUgraph *"),
    ptr("dependencies_out", "const CUgraphNode **"),
]
COUNT_OUT = ptr("numDependencies_out", "size_t *")
host_only("cuStreamGetCaptureInfo_v2", [*CAPTURE_INFO, COUNT_OUT], doc="Whether a stream captures.")
host_only(
    "cuStreamGetCaptureInfo_v3",
    [*CAPTURE_INFO, ptr("edgeData_out", f"const {EDGE} **"), COUNT_OUT],
    doc="For vgpuCaptureDependencies.",
)
