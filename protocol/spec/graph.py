"""Stream capture and graphs. Which streams are capturing is state of the client, spread by events as in the driver."""

from protocol.gen.dsl import (
    GRAPH,
    GRAPH_EXEC,
    I32,
    INIT,
    INVALID_VALUE,
    OUT_OF_MEMORY,
    QUEUED,
    SIZE,
    STREAM,
    U32,
    U64,
    ULL,
    WAITING,
    fn,
    handle,
    out,
    out_handle,
    ptr,
    val,
)

STREAM_ARG = handle("hStream", STREAM)
EXEC = handle("hGraphExec", GRAPH_EXEC)

fn("cuStreamBeginCapture", [ptr("hStream", "CUstream")], doc="The oldest form: global mode.")
fn(
    "cuStreamBeginCapture_v2",
    [STREAM_ARG, val("mode", I32, most=2, fixed="2 /* relaxed: the worker's threads are not the program's */")],
    WAITING,
    guest="custom",
    doc="Record a stream's work into a graph from here on; the mode's rules are kept in the client.",
    group="graphs",
)
fn(
    "cuStreamEndCapture",
    [STREAM_ARG, out_handle("phGraph", GRAPH)],
    WAITING,
    guest="custom",
    host="custom",
    doc="The graph of what was recorded.",
)
fn(
    "cuGraphCreate",
    [out_handle("phGraph", GRAPH), val("flags", U32, mask=0)],
    WAITING,
    need=INIT,
    doc="Empty graph.",
    group="graphs",
)
fn(
    "cuGraphDestroy",
    [handle("hGraph", GRAPH, ends=True, ending="vgs_graph_destroy_parts(hGraph_object)")],
    QUEUED,
    need=INIT,
    refuses={"hGraph_object->owner /* it goes with the node it lies in */": INVALID_VALUE},
    doc="Destroy a graph.",
)
fn(
    "cuGraphClone",
    [
        out_handle("phGraphClone", GRAPH, make="vgs_graph_create_clone(originalGraph_object)"),
        handle("originalGraph", GRAPH),
    ],
    WAITING,
    need=INIT,
    doc="A copy of a graph, child graphs too.",
)
fn(
    "cuGraphInstantiateWithFlags",
    [
        out_handle("phGraphExec", GRAPH_EXEC, make="vgs_graph_exec_create(hGraph_object)"),
        handle("hGraph", GRAPH),
        val("flags", ULL),
    ],
    WAITING,
    blocks=True,
    doc="Make a graph executable.",
)
fn(
    "cuGraphInstantiate_v2",
    [
        ptr("phGraphExec", "CUgraphExec *"),
        ptr("hGraph", "CUgraph"),
        ptr("phErrorNode", "CUgraphNode *"),
        ptr("logBuffer", "char *"),
        val("bufferSize", SIZE),
    ],
    aliases=["cuGraphInstantiate"],
    doc="The older form; the log stays empty.",
)
fn(
    "cuGraphInstantiateWithParams",
    [ptr("phGraphExec", "CUgraphExec *"), ptr("hGraph", "CUgraph"), ptr("instantiateParams", "void *")],
    doc="With CUDA_GRAPH_INSTANTIATE_PARAMS: flags, and a stream to upload on.",
)
fn(
    "cuGraphUpload",
    [EXEC, STREAM_ARG],
    QUEUED,
    doc="Bring a graph to the device before its first launch.",
)
fn(
    "cuGraphLaunch",
    [EXEC, STREAM_ARG],
    QUEUED,
    client_before="bool captured = hStream_object && vgs_capture_status(hStream_object->capture)",
    refuses={
        "!vgs_graph_exec_launch(hGraphExec_object, hStream_object, captured)": "CUDA_ERROR_OUT_OF_MEMORY",
    },
    checks=["captured || !vgs_diverted(VGS_MIRRORING) ? CUDA_SUCCESS : vgs_mirror_flush(hStream_id)"],
    waits="captured",
    # A graph that copies pageable memory has finished when this returns, as with NVIDIA's driver (580.159.04, seen on
    # an H200): the program may then change its memory without waiting.
    client_after="vgs_mirror_submitted(); "
    "if (!captured && hGraphExec_object->works.pageable) result = vgs_mirror_wait_stream(hStream_id)",
    submits=True,
    stacked=True,
    doc="Run a graph in stream order.",
)
fn(
    "cuGraphExecDestroy",
    [handle("hGraphExec", GRAPH_EXEC, ends=True, ending="vgs_graph_exec_end(hGraphExec_object)")],
    QUEUED,
    need=INIT,
    doc="Destroy an executable graph.",
)
fn("cuGraphExecGetFlags", [EXEC, out("flags", U64)], WAITING, need=INIT, doc="Flags a graph was made executable with.")
fn(
    "cuGraphExecUpdate_v2",
    [
        EXEC,
        handle("hGraph", GRAPH),
        ptr("resultInfo", "CUgraphExecUpdateResultInfo *"),
    ],
    WAITING,
    wire=[
        EXEC,
        handle("hGraph", GRAPH),
        *(out(name, I32) for name in ("error", "reason")),
        *(out(name, U32) for name in ("node", "from")),
    ],
    client_before="VGS_WORKS works = {0}",
    refuses={
        "!resultInfo": INVALID_VALUE,
        "!vgs_works_add_all(&works, &vgs_graph_outermost(hGraph_object)->works)": OUT_OF_MEMORY,
    },
    client_after="result = vgs_graph_exec_updated(hGraphExec_object, &works, error_told, reason_told, resultInfo); "
    "if (result) vgs_graph_exec_not_updated(hGraph_object, node_told, from_told, resultInfo)",
    # The update's error and its reason are results of the record, because a reply with an error carries no results.
    # Nodes are named by their place, from 1, because those of a captured graph may have no handles; 0: none.
    worker_before="CUgraphExecUpdateResultInfo info = {.result = CU_GRAPH_EXEC_UPDATE_ERROR}",
    given=["hGraphExec", "hGraph", "&info"],
    worker_done="error = (int)result, reason = info.result, result = CUDA_SUCCESS; "
    "if (error) node = vgx_graph_place_of(s, hGraph, info.errorNode), "
    "from = vgx_graph_place_of(s, hGraph, info.errorFromNode)",
    doc="Give an executable graph the parameters of a graph of the same shape; error is its CUresult.",
)
fn(
    "cuGraphExecUpdate",
    [
        ptr("hGraphExec", "CUgraphExec"),
        ptr("hGraph", "CUgraph"),
        ptr("hErrorNode_out", "CUgraphNode *"),
        ptr("updateResult_out", "int *"),
    ],
    doc="The older form.",
)
fn(
    "cuUserObjectCreate",
    [
        ptr("object_out", "CUuserObject *"),
        ptr("ptr", "void *"),
        ptr("destroy", "CUhostFn"),
        val("initialRefcount", U32),
        val("flags", U32),
    ],
    need=INIT,
    doc="What is destroyed when neither the program nor a graph refers to it.",
)
fn(
    "cuUserObjectRetain",
    [ptr("object", "CUuserObject"), val("count", U32)],
    need=INIT,
    doc="More references of the program's.",
)
fn(
    "cuUserObjectRelease",
    [ptr("object", "CUuserObject"), val("count", U32)],
    need=INIT,
    doc="Drop references of the program's.",
)
fn(
    "cuGraphRetainUserObject",
    [ptr("graph", "CUgraph"), ptr("object", "CUuserObject"), val("count", U32), val("flags", U32)],
    need=INIT,
    doc="References of a graph, and of what is made from it.",
)
fn(
    "cuGraphReleaseUserObject",
    [ptr("graph", "CUgraph"), ptr("object", "CUuserObject"), val("count", U32)],
    need=INIT,
    doc="Drop references of a graph.",
)
