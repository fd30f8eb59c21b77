"""Nodes of graphs. The client chooses their ids; a captured graph's nodes get theirs when the program asks for them.
Kernel parameters travel packed as in a launch."""

from typing import Any

from protocol.gen.dsl import (
    CONTEXT,
    GRAPH,
    GRAPH_EXEC,
    GRAPH_NODE,
    I32,
    INIT,
    INVALID_VALUE,
    NOT_SUPPORTED,
    OUT_OF_MEMORY,
    SIZE,
    U32,
    U64,
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
    sent,
    struct,
    struct_in,
    val,
)
from protocol.gen.model import Param
from protocol.spec.copy import EITHER, OUT_OF_REACH, SIDES
from protocol.spec.launch import EXTRA, PARAMS_CAP, SHAPE

GRAPH_ARG = handle("hGraph", GRAPH, ready="vgs_graph_name_nodes")
DEPENDENCIES = [handles_in("dependencies", GRAPH_NODE, "numDependencies", cap=1 << 18), val("numDependencies", SIZE)]


def node(make: str = "vgs_graph_node_create(hGraph_object)") -> Param:
    """The new node of a graph."""
    added = "vgs_graph_node_add(hGraph_object, phGraphNode_object)"
    return out_handle("phGraphNode", GRAPH_NODE, parent="hGraph", make=make, made=added)


NEW = [node(), GRAPH_ARG, *DEPENDENCIES]
NODE = ptr("hNode", "CUgraphNode")
EXEC = ptr("hGraphExec", "CUgraphExec")
CTX = ptr("ctx", "CUcontext")
KERNEL_PARAMS = ptr("nodeParams", "const CUDA_KERNEL_NODE_PARAMS_v2 *")
KERNEL_PARAMS_V1 = ptr("nodeParams", "const CUDA_KERNEL_NODE_PARAMS_v1 *")
COPY_PARAMS = ptr("copyParams", "const CUDA_MEMCPY3D *")
HOST_PARAMS = ptr("nodeParams", "const CUDA_HOST_NODE_PARAMS *")
CHILD = handle("childGraph", GRAPH)
MEMSET = [struct_in("memsetParams", "CUDA_MEMSET_NODE_PARAMS"), handle("ctx", CONTEXT, optional=True)]
OF_NODE = handle("hNode", GRAPH_NODE)
OF_EXEC = handle("hGraphExec", GRAPH_EXEC)

# Kernel nodes, with the parameters of a launch (vgs_graph_kernel.h).
LAUNCH = "kernel.launch"
KERNEL = [
    sent(function("f"), f"{LAUNCH}.kernel->object.kind, {LAUNCH}.kernel->object.id"),
    *(sent(val(f"{what}Dim{axis}", U32), f"{LAUNCH}.{what}[{i}]") for what in ("grid", "block")
      for i, axis in enumerate("XYZ")),
    sent(val("sharedMemBytes", U32), f"{LAUNCH}.shared_nbytes"),
    sent(val("params_nbytes", U32), f"{LAUNCH}.kernel->param_nbytes"),
]  # fmt: skip
PACKED = sent(bytes_in("params", "params_nbytes", cap=PARAMS_CAP), "kernel.block")
KERNEL_GIVEN = struct(
    "CUDA_KERNEL_NODE_PARAMS_v2",
    func="req->kind == VGW_KIND_KERNEL ? NULL : f",
    kern="req->kind == VGW_KIND_KERNEL ? (CUkernel)f : NULL",
    **{name: f"req->{name}" for name in SHAPE},
    extra=EXTRA,
)


def kernel(name: str, args: list[Param], wire: list[Param], given: list[str], kept: str, doc: str) -> None:
    fn(
        name,
        [*args, KERNEL_PARAMS],
        WAITING,
        wire=wire,
        client_before="VGS_NODE_KERNEL kernel = {.block = NULL}",
        checks=["vgs_node_kernel_pack(&kernel, nodeParams)"],
        client_after=kept and f"vgs_node_kernel_set({kept}, nodeParams, &kernel)",
        given=[*given, KERNEL_GIVEN],
        doc=doc,
    )


# Copy nodes. If the worker cannot reach the memory, the client makes two halves of one.
COPY = [handle("ctx", CONTEXT), *SIDES]

CALLBACK = sent(val("callback", U32), "vgs_work_id(work)")


def host(name: str, args: list[Param], wire: list[Param], given: list[str], doc: str, **rest: Any) -> None:
    """A function for host nodes: the record carries the id of the client's work."""
    fn(
        name,
        [*args, HOST_PARAMS],
        WAITING,
        wire=wire,
        client_before="VGS_WORK *work = NULL",
        checks=["vgs_graph_work(nodeParams, &work)"],
        violations={"!(req->callback & VGW_CALLBACK_OF_GRAPH)": "a graph's callback without its mark"},
        worker_before="CUDA_HOST_NODE_PARAMS callback = vgx_callback_of(s, req->callback)",
        given=[*given, "&callback"],
        doc=doc,
        **rest,
    )


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
    worker_after="type = vgx_graph_type_of(s, hNode, type)",
    doc="CUgraphNodeType of a node.",
)
fn(
    "vgpuGraphNodeNumber",
    [OF_NODE, out("number", U64)],
    WAITING,
    need=INIT,
    worker="s->backend->node_number ? s->backend->node_number(hNode, &number) : CUDA_ERROR_NOT_SUPPORTED",
    doc="The number that records of measured work (vgw_activity.h) have for a node.",
)
kernel(
    "cuGraphAddKernelNode_v2",
    NEW,
    [node(), GRAPH_ARG, *KERNEL, *DEPENDENCIES, PACKED],
    ["phGraphNode", "hGraph", "dependencies", "numDependencies"],
    "phGraphNode_object",
    "A kernel node; kind says whether the object is a function or a kernel.",
)
fn("cuGraphAddKernelNode", [*NEW, KERNEL_PARAMS_V1], doc="With the older, shorter parameters.")
fn(
    "cuGraphAddMemcpyNode",
    [*NEW, COPY_PARAMS, CTX],
    WAITING,
    guest="custom",
    wire=[node(), GRAPH_ARG, *COPY, *DEPENDENCIES],
    worker_answers=OUT_OF_REACH,
    given=["phGraphNode", "hGraph", "dependencies", "numDependencies", EITHER, "ctx"],
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
kernel(
    "cuGraphKernelNodeSetParams_v2",
    [OF_NODE],
    [OF_NODE, *KERNEL, PACKED],
    ["hNode"],
    "hNode_object",
    "For graphs made executable later.",
)
fn("cuGraphKernelNodeSetParams", [NODE, KERNEL_PARAMS_V1], doc="With the older, shorter parameters.")
kernel(
    "cuGraphExecKernelNodeSetParams_v2",
    [OF_EXEC, OF_NODE],
    [OF_EXEC, OF_NODE, *KERNEL, PACKED],
    ["hGraphExec", "hNode"],
    "",
    "For later launches.",
)
fn("cuGraphExecKernelNodeSetParams", [EXEC, NODE, KERNEL_PARAMS_V1], doc="With the older, shorter parameters.")
fn(
    "cuGraphExecMemcpyNodeSetParams",
    [EXEC, NODE, COPY_PARAMS, CTX],
    WAITING,
    guest="custom",
    wire=[OF_EXEC, OF_NODE, *COPY],
    worker_answers={"vgx_handle_is_split(s, VGW_KIND_GRAPH_NODE, req->hNode)": NOT_SUPPORTED} | OUT_OF_REACH,
    given=["hGraphExec", "hNode", EITHER, "ctx"],
    doc="For later launches.",
)
fn(
    "cuGraphExecMemsetNodeSetParams",
    [OF_EXEC, OF_NODE, *MEMSET],
    WAITING,
    doc="For later launches.",
)
NEW_HOST = node("vgs_graph_node_create_with(hGraph_object, work)")
host(
    "cuGraphAddHostNode",
    [NEW_HOST, GRAPH_ARG, *DEPENDENCIES],
    [NEW_HOST, GRAPH_ARG, CALLBACK, *DEPENDENCIES],
    ["phGraphNode", "hGraph", "dependencies", "numDependencies"],
    "A function of the program's, called by the client at each launch.",
)
fn(
    "cuGraphHostNodeGetParams",
    [OF_NODE, ptr("nodeParams", "CUDA_HOST_NODE_PARAMS *")],
    WAITING,
    need=INIT,
    wire=[OF_NODE, out("callback", U32)],
    refuses={"!nodeParams": INVALID_VALUE},
    client_after=f"if (!vgs_work_params(callback_told, nodeParams)) result = {INVALID_VALUE}",
    worker=f"vgx_graph_callback_of(s, hNode, &callback) ? CUDA_SUCCESS : {INVALID_VALUE}",
    doc="Function and argument of a host node.",
)
host(
    "cuGraphHostNodeSetParams",
    [OF_NODE],
    [OF_NODE, CALLBACK],
    ["hNode"],
    "For graphs made executable later.",
    need=INIT,
    refuses={"!vgs_graph_find(hNode_object->graph)": INVALID_VALUE},
    client_after="result = vgs_graph_set_work(hNode_object, &work)",
)
host(
    "cuGraphExecHostNodeSetParams",
    [OF_EXEC, OF_NODE],
    [OF_EXEC, OF_NODE, CALLBACK],
    ["hGraphExec", "hNode"],
    "For later launches.",
    need=INIT,
    client_after="result = vgs_graph_exec_set_work(hGraphExec_object, hNode_object, &work)",
)
fn(
    "cuGraphAddChildGraphNode",
    [node("vgs_graph_node_create_child(hGraph_object, childGraph_object)"), GRAPH_ARG, *DEPENDENCIES, CHILD],
    WAITING,
    need=INIT,
    client_failed="vgs_graph_remove_child(hGraph_object, phGraphNode_object)",
    doc="A copy of a graph as one node.",
)
fn(
    "vgpuGraphMoveChild",
    [node(), GRAPH_ARG, *DEPENDENCIES, CHILD],
    WAITING,
    need=INIT,
    worker_answers={"!vgx_graph_may_move(s, req->childGraph, req->hGraph)": INVALID_VALUE},
    worker="vgx_graph_move_child(s, hGraph, dependencies, req->numDependencies, childGraph, &phGraphNode)",
    worker_after="vgx_graph_moved(s, req->childGraph, req->phGraphNode)",
    doc="A graph as one node, which owns it from then on: CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE.",
)
fn(
    "vgpuGraphSwapNodes",
    [OF_NODE, handle("other", GRAPH_NODE)],
    WAITING,
    need=INIT,
    # With a driver before 12.3 a captured copy may be two nodes.
    worker_answers={
        "vgx_handle_is_split(s, VGW_KIND_GRAPH_NODE, req->hNode)": NOT_SUPPORTED,
        "vgx_handle_is_split(s, VGW_KIND_GRAPH_NODE, req->other)": NOT_SUPPORTED,
    },
    worker="vgx_graph_swap_nodes(s, req->hNode, req->other)",
    doc="Each of two nodes of a graph is known by the other's id from then on, and so is what lies in it.",
)
fn(
    "cuGraphChildGraphNodeGetGraph",
    [
        OF_NODE,
        out_handle(
            "phGraph",
            GRAPH,
            parent="hNode",
            make="vgs_graph_create_inside(hNode_object)",
            made="hNode_object->inside = vgs_object_handle(phGraph_object)",
        ),
    ],
    WAITING,
    need=INIT,
    answers={"hNode_object->inside": "(*phGraph = hNode_object->inside, CUDA_SUCCESS)"},  # the same at each call
    worker_answers={"vgx_graph_is_whole_copy(s, hNode)": INVALID_VALUE},
    doc="The graph inside a node, which it dies with.",
)
fn(
    "cuGraphExecChildGraphNodeSetParams",
    [OF_EXEC, OF_NODE, CHILD],
    WAITING,
    need=INIT,
    client_before="VGS_WORKS works = {0}",
    refuses={"!vgs_works_add_all(&works, &vgs_graph_outermost(childGraph_object)->works)": OUT_OF_MEMORY},
    client_after="result = vgs_graph_exec_set_child(hGraphExec_object, hNode_object, &works)",
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
