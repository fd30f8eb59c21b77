"""Nodes of graphs. The client chooses their ids; a captured graph's nodes get theirs when the program asks for them.
Kernel parameters travel packed as in a launch."""

from protocol.gen.dsl import (
    CONTEXT,
    DEVICEPTR,
    GRAPH,
    GRAPH_EXEC,
    GRAPH_NODE,
    I32,
    INIT,
    SIZE,
    U32,
    WAITING,
    bytes_in,
    fn,
    found,
    function,
    handle,
    handles_in,
    out,
    out_handle,
    ptr,
    struct_in,
    val,
)
from protocol.gen.model import Param

GRAPH_ARG = handle("hGraph", GRAPH, ready="vgs_graph_name_nodes")
DEPENDENCIES = [handles_in("dependencies", GRAPH_NODE, "numDependencies", cap=1 << 18), val("numDependencies", SIZE)]
NEW = [
    out_handle(
        "phGraphNode",
        GRAPH_NODE,
        parent="hGraph",
        make="vgs_graph_node_create(hGraph_object)",
        made="vgs_graph_node_add(hGraph_object, phGraphNode_object)",
    ),
    GRAPH_ARG,
    *DEPENDENCIES,
]
NODE = ptr("hNode", "CUgraphNode")
EXEC = ptr("hGraphExec", "CUgraphExec")
CTX = ptr("ctx", "CUcontext")
KERNEL_PARAMS = ptr("nodeParams", "const CUDA_KERNEL_NODE_PARAMS_v2 *")
KERNEL_PARAMS_V1 = ptr("nodeParams", "const CUDA_KERNEL_NODE_PARAMS_v1 *")
COPY_PARAMS = ptr("copyParams", "const CUDA_MEMCPY3D *")
HOST_PARAMS = ptr("nodeParams", "const CUDA_HOST_NODE_PARAMS *")
CHILD = handle("childGraph", GRAPH)


def new(*values: Param, last: Param | None = None) -> list[Param]:
    """What travels for a node whose parameters do not: its values, then its dependencies."""
    node = out_handle("node", GRAPH_NODE, parent="hGraph")
    return [node, handle("hGraph", GRAPH), *values, *DEPENDENCIES, *([last] if last else [])]


KERNEL = [function("f")] + [
    val(n, U32)
    for n in (
        "gridDimX", "gridDimY", "gridDimZ", "blockDimX", "blockDimY", "blockDimZ", "sharedMemBytes",
        "params_nbytes",
    )
]  # fmt: skip
PACKED = bytes_in("params", "params_nbytes", cap=32768)
COPY = [
    handle("ctx", CONTEXT),
    val("dst", DEVICEPTR),
    val("dstPitch", SIZE),
    val("dstRows", SIZE),
    val("src", DEVICEPTR),
    val("srcPitch", SIZE),
    val("srcRows", SIZE),
    val("width", SIZE),
    val("height", SIZE),
    val("depth", SIZE),
]
MEMSET = [struct_in("memsetParams", "CUDA_MEMSET_NODE_PARAMS"), handle("ctx", CONTEXT, optional=True)]
CALLBACK = val("callback", U32)
OF_NODE = handle("hNode", GRAPH_NODE)
OF_EXEC = handle("hGraphExec", GRAPH_EXEC)

fn(
    "cuGraphGetNodes",
    [ptr("hGraph", "CUgraph"), ptr("nodes", "CUgraphNode *"), ptr("numNodes", "size_t *")],
    WAITING,
    need=INIT,
    guest="custom",
    host="custom",
    wire=[handle("hGraph", GRAPH), out("count", SIZE), val("ids_nbytes", U32), bytes_in("ids", "ids_nbytes")],
    doc="How many nodes a graph has; with ids (u32 each, all new): names its nodes, in the driver's order.",
)
fn(
    "cuGraphNodeGetType",
    [OF_NODE, out("type", I32)],
    WAITING,
    need=INIT,
    host="custom",
    doc="CUgraphNodeType of a node.",
)
fn(
    "cuGraphAddKernelNode_v2",
    [*NEW, KERNEL_PARAMS],
    WAITING,
    guest="custom",
    host="custom",
    wire=new(*KERNEL, last=PACKED),
    doc="A kernel node; kind says whether the object is a function or a kernel.",
)
fn("cuGraphAddKernelNode", [*NEW, KERNEL_PARAMS_V1], doc="With the older, shorter parameters.")
fn(
    "cuGraphAddMemcpyNode",
    [*NEW, COPY_PARAMS, CTX],
    WAITING,
    guest="custom",
    host="custom",
    wire=new(*COPY),
    doc="A copy the worker can reach.",
)
fn("cuGraphAddMemsetNode", [*NEW, *MEMSET], WAITING, doc="A fill of device memory.")
fn("cuGraphAddEmptyNode", NEW, WAITING, doc="A node that only orders others.")
fn(
    "cuGraphAddDependencies",
    [
        handle("hGraph", GRAPH),
        handles_in("from", GRAPH_NODE, "numDependencies", cap=1 << 18),
        handles_in("to", GRAPH_NODE, "numDependencies", cap=1 << 18),
        val("numDependencies", SIZE),
    ],
    WAITING,
    need=INIT,
    doc="Edges from nodes to others.",
)
fn(
    "cuGraphAddDependencies_v2",
    [
        ptr("hGraph", "CUgraph"),
        ptr("from", "const CUgraphNode *"),
        ptr("to", "const CUgraphNode *"),
        ptr("edgeData", "const void *"),
        val("numDependencies", SIZE),
    ],
    need=INIT,
    doc="With edge data, which must be NULL.",
)
fn(
    "cuGraphKernelNodeSetParams_v2",
    [NODE, KERNEL_PARAMS],
    WAITING,
    guest="custom",
    host="custom",
    wire=[OF_NODE, *KERNEL, PACKED],
    doc="For graphs made executable later.",
)
fn("cuGraphKernelNodeSetParams", [NODE, KERNEL_PARAMS_V1], doc="With the older, shorter parameters.")
fn(
    "cuGraphExecKernelNodeSetParams_v2",
    [EXEC, NODE, KERNEL_PARAMS],
    WAITING,
    guest="custom",
    host="custom",
    wire=[OF_EXEC, OF_NODE, *KERNEL, PACKED],
    doc="For later launches.",
)
fn("cuGraphExecKernelNodeSetParams", [EXEC, NODE, KERNEL_PARAMS_V1], doc="With the older, shorter parameters.")
fn(
    "cuGraphExecMemcpyNodeSetParams",
    [EXEC, NODE, COPY_PARAMS, CTX],
    WAITING,
    guest="custom",
    host="custom",
    wire=[OF_EXEC, OF_NODE, *COPY],
    doc="For later launches.",
)
fn(
    "cuGraphExecMemsetNodeSetParams",
    [OF_EXEC, OF_NODE, *MEMSET],
    WAITING,
    doc="For later launches.",
)
fn(
    "cuGraphAddHostNode",
    [*NEW, HOST_PARAMS],
    WAITING,
    guest="custom",
    host="custom",
    wire=new(CALLBACK),
    doc="A function of the program's, called by the client at each launch.",
)
fn(
    "cuGraphHostNodeGetParams",
    [NODE, ptr("nodeParams", "CUDA_HOST_NODE_PARAMS *")],
    WAITING,
    need=INIT,
    guest="custom",
    host="custom",
    wire=[OF_NODE, out("callback", U32)],
    doc="Function and argument of a host node.",
)
fn(
    "cuGraphHostNodeSetParams",
    [NODE, HOST_PARAMS],
    WAITING,
    need=INIT,
    guest="custom",
    host="custom",
    wire=[OF_NODE, CALLBACK],
    doc="For graphs made executable later.",
)
fn(
    "cuGraphExecHostNodeSetParams",
    [EXEC, NODE, HOST_PARAMS],
    WAITING,
    need=INIT,
    guest="custom",
    host="custom",
    wire=[OF_EXEC, OF_NODE, CALLBACK],
    doc="For later launches.",
)
fn(
    "cuGraphAddChildGraphNode",
    [*NEW, CHILD],
    WAITING,
    need=INIT,
    guest="custom",
    doc="A copy of a graph as one node.",
)
fn(
    "cuGraphChildGraphNodeGetGraph",
    [NODE, ptr("phGraph", "CUgraph *")],
    WAITING,
    need=INIT,
    guest="custom",
    host="custom",
    wire=[OF_NODE, out_handle("graph", GRAPH, parent="hNode")],
    doc="The graph inside a node, which it dies with.",
)
fn(
    "cuGraphExecChildGraphNodeSetParams",
    [OF_EXEC, OF_NODE, CHILD],
    WAITING,
    need=INIT,
    guest="custom",
    doc="The parameters of a graph of the same shape, for later launches.",
)
fn(
    "cuGraphNodeFindInClone",
    [
        found("phNode", GRAPH_NODE),
        handle("hOriginalNode", GRAPH_NODE),
        handle("hClonedGraph", GRAPH, ready="vgs_graph_name_nodes"),
    ],
    WAITING,
    need=INIT,
    doc="A clone's node for an original's.",
)
