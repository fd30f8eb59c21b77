"""Memory that graphs allocate and free: their nodes, and a device's memory for all graphs."""

from protocol.gen.dsl import (
    DEVICE,
    DEVICEPTR,
    GRAPH_NODE,
    I32,
    INIT,
    INVALID_VALUE,
    SIZE,
    WAITING,
    array_in,
    array_out,
    count,
    device_at,
    fixed_at,
    fn,
    handle,
    out,
    ptr,
    sent,
    struct_in,
    struct_out,
    val,
    word_in,
    word_out,
)
from protocol.spec.graph_node import DEPENDENCIES, GRAPH_ARG, NEW, node

ACCESS_CAP = 64  # devices
NODE = handle("hNode", GRAPH_NODE)
PARAMS = "CUDA_MEM_ALLOC_NODE_PARAMS"
POOL = struct_in(
    "poolProps",
    "CUmemPoolProps",
    device_at("location.id"),
    fixed_at("win32SecurityAttributes"),
    fixed_at("handleTypes"),
)
ACCESS = array_in("accessDescs", "CUmemAccessDesc", "accessDescCount", ACCESS_CAP, (device_at("location.id"),))

fn(
    "cuGraphAddMemAllocNode",
    [*NEW, ptr("nodeParams", f"{PARAMS} *")],
    WAITING,
    wire=[
        node(),
        GRAPH_ARG,
        *DEPENDENCIES,
        out("dptr", DEVICEPTR),
        sent(POOL, "&memory.params.poolProps"),
        sent(val("bytesize", SIZE), "memory.params.bytesize"),
        sent(val("accessDescCount", SIZE), "memory.params.accessDescCount"),
        sent(ACCESS, "memory.descs"),
    ],
    client_before="struct vgs_node_memory memory",
    checks=["vgs_node_memory_check(&memory, nodeParams)"],
    client_after="result = vgs_node_memory_add(dptr_told, nodeParams)",
    worker_before=f"{PARAMS} params = {{.poolProps = poolProps, .accessDescs = accessDescs, .accessDescCount = "
    "req->accessDescCount, .bytesize = req->bytesize}",
    given=["phGraphNode", "hGraph", "dependencies", "numDependencies", "&params"],
    worker_checks=["vgx_graph_range_reserve(s, req->bytesize)"],
    worker_done="vgx_graph_range_set(s, result == CUDA_SUCCESS ? params.dptr : 0, req->bytesize)",
    worker_after="dptr = params.dptr",
    doc="Memory whose address is known now, and which there is from this node's run until it is freed.",
)
fn(
    "cuGraphMemAllocNodeGetParams",
    [NODE, ptr("params_out", f"{PARAMS} *")],
    WAITING,
    need=INIT,
    wire=[
        NODE,
        sent(struct_out("poolProps", "CUmemPoolProps"), "&memory.params.poolProps"),
        out("bytesize", SIZE),
        out("dptr", DEVICEPTR),
        sent(count("accessDescCount", SIZE), "&memory.params.accessDescCount"),
        sent(array_out("accessDescs", "CUmemAccessDesc", "accessDescCount", ACCESS_CAP), "memory.descs"),
    ],
    client_before="struct vgs_node_memory memory = {.params.accessDescCount = VGS_NODE_ACCESS_MAX}",
    refuses={"!params_out": INVALID_VALUE},
    client_after="memory.params.bytesize = bytesize_told, memory.params.dptr = dptr_told, "
    "result = vgs_node_memory_params(hNode_object, &memory, params_out)",
    worker_before=f"{PARAMS} params = {{.dptr = 0}}",
    given=["hNode", "&params"],
    worker_after="poolProps = params.poolProps, bytesize = params.bytesize, dptr = params.dptr, accessDescCount = "
    "vgx_node_access(&params, accessDescs, req->accessDescCount)",
    doc="What an allocation's node was given, and its address.",
)
fn(
    "cuGraphAddMemFreeNode",
    [*NEW, val("dptr", DEVICEPTR)],
    WAITING,
    doc="The end of what an allocation's node, of this graph or another, has made.",
)
fn(
    "cuGraphMemFreeNodeGetParams",
    [NODE, out("dptr_out", DEVICEPTR)],
    WAITING,
    need=INIT,
    doc="The address that a node frees.",
)
DEV = val("device", DEVICE)
ATTRIBUTE = val("attr", I32, most=3)  # bytes used and reserved, each now and at most
fn(
    "cuDeviceGetGraphMemAttribute",
    [DEV, ATTRIBUTE, word_out("value", "true")],
    WAITING,
    doc="Memory of a device that graphs use or have reserved.",
)
fn(
    "cuDeviceSetGraphMemAttribute",
    [DEV, ATTRIBUTE, word_in("value", "true")],
    WAITING,
    doc="Set a high-water mark back.",
)
fn("cuDeviceGraphMemTrim", [DEV], WAITING, doc="Give reserved memory back that no graph uses.")
