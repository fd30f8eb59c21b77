"""The channel's own functions besides CUDA's, and functions of a backend that no record calls."""

from protocol.gen.dsl import (
    ADDRESS,
    DEVICEPTR,
    I32,
    INIT,
    QUEUED,
    RING,
    SIZE,
    SOCKET,
    STREAM,
    U32,
    U64,
    WAITING,
    bytes_out,
    fn,
    handle,
    host_only,
    out,
    own_export,
    ptr,
    val,
)

fn(
    "vgpuTakeOutput",
    [val("capacity", SIZE), bytes_out("text", "capacity", cap=1 << 20)],
    WAITING,
    need=INIT,
    worker_before="vgx_notice(s, VGW_NOTICE_OUTPUT, false)",
    worker="(text_nbytes = s->backend->take_output ? s->backend->take_output(text, req->capacity) : 0, CUDA_SUCCESS)",
    doc="What kernels have printed since the last time.",
)

fn(
    "vgpuTakeReasons",
    [val("capacity", SIZE), bytes_out("text", "capacity", cap=1 << 16)],
    WAITING,
    need=INIT,
    doc="Why calls have failed since the last time: lines of `E` or `R`, a result and a text; `E` ends the context.",
)

fn(
    "vgpuRingOpen",
    [val("ring", U32)],
    WAITING,
    need=INIT,
    channel=SOCKET,
    descriptor=True,
    doc="Serve the attached memfd as ring number `ring` (vgw_wire.h).",
)
fn(
    "vgpuRingOpenAt",
    [val("offset", U64), val("ring", U32)],
    WAITING,
    need=INIT,
    channel=SOCKET,
    doc="Serve the ring that lies at `offset` in the session's share of a region (wire.md).",
)
fn(
    "vgpuRingWake",
    [val("ring", U32)],
    QUEUED,
    need=INIT,
    channel=SOCKET,
    doc="There is something in this ring of a region, whose thread said that it sleeps.",
)
fn(
    "vgpuRingWait",
    [val("ring", U32), val("reply", U32)],
    WAITING,
    need=INIT,
    channel=SOCKET,
    blocks=True,
    doc="Answered when this ring of a region holds the reply with that sequence.",
)
fn(
    "vgpuRingFence",
    [val("executed", U64), val("ring", U32)],
    QUEUED,
    need=INIT,
    channel=RING,
    blocks=True,
    doc="Go on in this ring only when that ring has executed so many records.",
)

fn(
    "vgpuStreamFlag",
    [val("address", ADDRESS), val("value", U32), handle("hStream", STREAM)],
    QUEUED,
    awaited=True,
    doc="Once the stream has come here, the device writes the value to shared pinned memory: the client need not ask.",
)

fn(
    "vgpuActivityStart",
    [val("what", U32), out("how", U32)],
    WAITING,
    need=INIT,
    channel=SOCKET,
    doc="Measure what correlated requests have the device do: bits VGW_MEASURE_*, asked for and answered.",
    group="profiling",
)
fn("vgpuActivityStop", [], WAITING, need=INIT, channel=SOCKET, doc="Measure no longer; what was can be taken.")
fn(
    "vgpuActivityClock",
    [out("now_ns", U64), out("dropped", U64), out("waiting", U64)],
    WAITING,
    need=INIT,
    channel=SOCKET,
    doc="The worker's monotonic clock, to which records' times refer; records lost, and those that can be taken.",
)
fn(
    "vgpuActivityTake",
    [val("capacity", SIZE), bytes_out("records", "capacity", cap=1 << 20)],
    WAITING,
    need=INIT,
    channel=SOCKET,
    doc="The oldest records of what the device has done (vgw_activity.h).",
)
fn(
    "vgpuActivityName",
    [val("capacity", SIZE), bytes_out("text", "capacity", cap=4096), val("name", U32)],
    WAITING,
    need=INIT,
    channel=SOCKET,
    doc="The text that a record's `name` stands for.",
)

own_export("vgpuProfiling")

host_only("cuCtxSetCurrent", [ptr("ctx", "CUcontext")], doc="Before each call whose header names another context.")
host_only(
    "cuFuncGetAttribute",
    [out("pi", I32), val("attrib", I32), ptr("hfunc", "CUfunction")],
    doc="For vgpuKernelDescribe.",
)
host_only(
    "cuFuncGetParamInfo",
    [ptr("func", "CUfunction"), val("paramIndex", SIZE), out("paramOffset", SIZE), out("paramSize", SIZE)],
    doc="For vgpuKernelDescribe.",
)
host_only(
    "cuKernelGetFunction",
    [ptr("pFunc", "CUfunction *"), ptr("kernel", "CUkernel")],
    doc="A library's kernel in the current context.",
)
host_only("cuFuncGetName", [ptr("name", "const char **"), ptr("hfunc", "CUfunction")], doc="For vgpuKernelName.")
host_only("cuKernelGetName", [ptr("name", "const char **"), ptr("kernel", "CUkernel")], doc="For vgpuKernelName.")
host_only(
    "cuLibraryEnumerateKernels",
    [ptr("kernels", "CUkernel *"), val("numKernels", U32), ptr("lib", "CUlibrary")],
    doc="For vgpuKernelName.",
)
host_only(
    "cuModuleEnumerateFunctions",
    [ptr("functions", "CUfunction *"), val("numFunctions", U32), ptr("mod", "CUmodule")],
    doc="For vgpuKernelName.",
)
host_only(
    "cuMemcpy2DAsync_v2",
    [ptr("pCopy", "const CUDA_MEMCPY2D *"), ptr("hStream", "CUstream")],
    doc="For the rectangle copies.",
)
host_only(
    "cuMemHostRegister_v2", [ptr("p", "void *"), val("bytesize", SIZE), val("Flags", U32)], doc="For vgpuHostMap."
)
host_only("cuMemHostUnregister", [ptr("p", "void *")], doc="For vgpuHostUnmap.")
host_only(
    "cuPointerGetAttribute",
    [ptr("data", "void *"), val("attribute", I32), val("ptr", DEVICEPTR)],
    doc="To tell device addresses from host ones.",
)
host_only(
    "cuLaunchHostFunc",
    [ptr("hStream", "CUstream"), ptr("fn", "CUhostFn"), ptr("userData", "void *")],
    doc="For vgpuHostCallback.",
)
