"""Conditional nodes, nodes of operations on words, and destroying nodes."""

from protocol.gen.dsl import (
    CONTEXT,
    GRAPH,
    GRAPH_EXEC,
    GRAPH_NODE,
    I32,
    INIT,
    INVALID_VALUE,
    NOT_SUPPORTED,
    U32,
    U64,
    WAITING,
    array_in,
    array_out,
    bytes_in,
    count,
    fn,
    handle,
    host_only,
    out,
    ptr,
    sent,
    struct,
    val,
)
from protocol.spec.graph_node import DEPENDENCIES, GRAPH_ARG, NEW, node
from protocol.spec.stream_memory import WORDS_MAX

NODE, EXEC = handle("hNode", GRAPH_NODE), handle("hGraphExec", GRAPH_EXEC)
BODIES_MAX = 1 << 16

fn(
    "cuGraphConditionalHandleCreate",
    [
        out("pHandle_out", U64),
        handle("hGraph", GRAPH),
        handle("ctx", CONTEXT, optional=True),
        val("defaultLaunchValue", U32),
        val("flags", U32, mask=1),
    ],
    WAITING,
    worker_after="result = vgx_condition_add(s, req->hGraph, pHandle_out)",
    doc="A value that kernels set and a conditional node of the graph looks at; the number that kernels get.",
)
fn(
    "vgpuGraphAddConditional",
    [
        handle("hGraph", GRAPH),
        handle("ctx", CONTEXT),
        val("condition", U64),
        val("type", I32),
        val("node", U32),
        val("bodies_nbytes", U32),
        *DEPENDENCIES,
        bytes_in("bodies", "bodies_nbytes", cap=4 * BODIES_MAX),
    ],
    WAITING,
    host="custom",
    worker_answers={"!vgx_condition_is_of(s, req->hGraph, req->condition)": INVALID_VALUE},
    doc="A conditional node, and the graphs (u32 ids) that it runs.",
)
host_only(
    "cuGraphAddNode_v2",
    [
        ptr("phGraphNode", "CUgraphNode *"),
        ptr("hGraph", "CUgraph"),
        ptr("dependencies", "const CUgraphNode *"),
        ptr("dependencyData", "const CUgraphEdgeData *"),
        val("numDependencies", U64),
        ptr("nodeParams", "CUgraphNodeParams *"),
    ],
    doc="For conditional nodes.",
)

# Operations on words.
WORDS = "CUDA_BATCH_MEM_OP_NODE_PARAMS"
WORDS_IN = ptr("nodeParams", f"const {WORDS} *")
COUNT = sent(val("count", U32), "nodeParams->count")
OPERATIONS = sent(array_in("paramArray", "CUstreamBatchMemOpParams", "count", WORDS_MAX), "nodeParams->paramArray")
CONTEXT_ARG = sent(handle("ctx", CONTEXT), "context_id")
NUMBER = "uint32_t context_id"
CHECKS = ["vgs_node_words_check(nodeParams, &context_id)"]
GIVEN = struct(WORDS, ctx="ctx", count="req->count", paramArray="paramArray")
fn(
    "cuGraphAddBatchMemOpNode",
    [*NEW, WORDS_IN],
    WAITING,
    wire=[node(), GRAPH_ARG, CONTEXT_ARG, COUNT, *DEPENDENCIES, OPERATIONS],
    given=["phGraphNode", "hGraph", "dependencies", "numDependencies", GIVEN],
    doc="Operations on words of memory as one node.",
    client_before=NUMBER,
    checks=CHECKS,
    group="memops",
)
fn(
    "cuGraphBatchMemOpNodeGetParams",
    [NODE, ptr("nodeParams_out", f"{WORDS} *")],
    WAITING,
    need=INIT,
    wire=[
        NODE,
        out("ctx", U32),
        sent(count("count", U32), "&count"),
        sent(array_out("paramArray", "CUstreamBatchMemOpParams", "count", WORDS_MAX), "words"),
    ],
    client_before="CUstreamBatchMemOpParams words[VGS_NODE_WORDS_MAX]; unsigned count = VGS_NODE_WORDS_MAX",
    refuses={"!nodeParams_out": INVALID_VALUE},
    client_after="result = vgs_node_words_params(hNode_object, ctx_told, words, count, nodeParams_out)",
    worker_before=f"{WORDS} params = {{.count = 0}}",
    given=["hNode", "&params"],
    worker_after="count = vgx_node_words(s, &params, paramArray, req->count, &ctx)",
    doc="What a node of operations on words was given.",
)
fn(
    "cuGraphBatchMemOpNodeSetParams",
    [NODE, WORDS_IN],
    WAITING,
    wire=[NODE, CONTEXT_ARG, COUNT, OPERATIONS],
    given=["hNode", GIVEN],
    doc="For graphs made executable later.",
    client_before=NUMBER,
    checks=CHECKS,
)
fn(
    "cuGraphExecBatchMemOpNodeSetParams",
    [EXEC, NODE, WORDS_IN],
    WAITING,
    wire=[EXEC, NODE, CONTEXT_ARG, COUNT, OPERATIONS],
    given=["hGraphExec", "hNode", GIVEN],
    doc="For later launches.",
    client_before=NUMBER,
    checks=CHECKS,
)

fn(
    "cuGraphDestroyNode",
    [handle("hNode", GRAPH_NODE, ends=True)],
    WAITING,
    need=INIT,
    guest="custom",
    # Removing one half of a copy would leave the other half in the graph.
    worker_answers={"vgx_handle_is_split(s, VGW_KIND_GRAPH_NODE, req->hNode)": NOT_SUPPORTED},
    doc="Take a node and its edges out of its graph.",
)
