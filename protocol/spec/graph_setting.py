"""Settings of nodes besides their parameters: attributes of kernels, events, and whether a node is enabled."""

from protocol.gen.dsl import (
    EVENT,
    GRAPH_EXEC,
    GRAPH_NODE,
    I32,
    INIT,
    U32,
    WAITING,
    fn,
    found,
    handle,
    out,
    struct_in,
    struct_out,
    val,
)
from protocol.spec.graph_query import MARK

NODE = handle("hNode", GRAPH_NODE)
EXEC = handle("hGraphExec", GRAPH_EXEC)
ATTRIBUTE = val("attr", I32)

fn(
    "cuGraphKernelNodeSetAttribute",
    [NODE, ATTRIBUTE, struct_in("value", "CUlaunchAttributeValue")],
    WAITING,
    need=INIT,
    doc="Change an attribute of a kernel node.",
)
fn(
    "cuGraphKernelNodeGetAttribute",
    [NODE, ATTRIBUTE, struct_out("value_out", "CUlaunchAttributeValue")],
    WAITING,
    need=INIT,
    doc="An attribute of a kernel node.",
)
fn(
    "cuGraphKernelNodeCopyAttributes",
    [handle("dst", GRAPH_NODE), handle("src", GRAPH_NODE)],
    WAITING,
    need=INIT,
    doc="Give a kernel node the attributes of another.",
)
fn(
    "cuGraphNodeSetEnabled",
    [EXEC, NODE, val("isEnabled", U32)],
    WAITING,
    need=INIT,
    doc="Whether later launches run a node.",
)
fn(
    "cuGraphNodeGetEnabled",
    [EXEC, NODE, out("isEnabled", U32)],
    WAITING,
    need=INIT,
    doc="Whether launches run a node.",
)
for what in MARK:
    fn(
        f"cuGraphEvent{what}NodeGetEvent",
        [NODE, found("event_out", EVENT)],
        WAITING,
        need=INIT,
        doc="The event of a node.",
    )
    fn(
        f"cuGraphEvent{what}NodeSetEvent",
        [NODE, handle("event", EVENT)],
        WAITING,
        need=INIT,
        client_before=MARK[what],
        doc="Give a node another event.",
    )
    fn(
        f"cuGraphExecEvent{what}NodeSetEvent",
        [EXEC, NODE, handle("event", EVENT)],
        WAITING,
        need=INIT,
        client_before=MARK[what],
        doc="For later launches.",
    )
