"""Launches. Parameters are packed in the client by the kernel's layout; the worker checks their total size."""

from protocol.gen.dsl import (
    ASKS,
    I32,
    INIT,
    OVERTAKES,
    QUEUED,
    SOCKET,
    STREAM,
    U32,
    WAITING,
    bytes_in,
    fn,
    function,
    handle,
    out,
    ptr,
    val,
)

SHAPE = ("gridDimX", "gridDimY", "gridDimZ", "blockDimX", "blockDimY", "blockDimZ", "sharedMemBytes")
GRID = [val(name, U32) for name in SHAPE]
PARAMS_CAP = 32768  # CUDA's own limit is 32,764 bytes

# C that passes the packed parameter block to the driver (`extra` of cuLaunchKernel).
EXTRA = (
    "req->params_nbytes ? (void *[]){CU_LAUNCH_PARAM_BUFFER_POINTER, (void *)params, CU_LAUNCH_PARAM_BUFFER_SIZE, "
    "&(size_t){req->params_nbytes}, CU_LAUNCH_PARAM_END} : NULL"
)

fn(
    "cuLaunchKernel",
    [
        ptr("f", "CUfunction"),
        *GRID,
        ptr("hStream", "CUstream"),
        ptr("kernelParams", "void **"),
        ptr("extra", "void **"),
    ],
    QUEUED,
    guest="custom",
    given=["f", *SHAPE, "hStream", "NULL", EXTRA],
    wire=[
        function("f"),
        *GRID,
        handle("hStream", STREAM),
        val("params_nbytes", U32),
        bytes_in("params", "params_nbytes", cap=PARAMS_CAP),
    ],
    in_place=True,
    submits=True,
    stacked=True,
    doc="Launch a kernel; kind says whether the object is a function or a kernel.",
)
fn(
    "cuLaunchKernelEx",
    [
        ptr("config", "const CUlaunchConfig *"),
        ptr("f", "CUfunction"),
        ptr("kernelParams", "void **"),
        ptr("extra", "void **"),
    ],
    QUEUED,
    guest="custom",
    host="custom",
    wire=[
        function("f"),
        *GRID,
        handle("hStream", STREAM),
        val("attrs_nbytes", U32),
        val("params_nbytes", U32),
        bytes_in("attrs", "attrs_nbytes", cap=72 * 64),
        bytes_in("params", "params_nbytes", cap=PARAMS_CAP),
    ],
    submits=True,
    stacked=True,
    doc="With launch attributes (CUlaunchAttribute array; events inside are handle ids).",
)
fn(
    "cuLaunchCooperativeKernel",
    [ptr("f", "CUfunction"), *GRID, ptr("hStream", "CUstream"), ptr("kernelParams", "void **")],
    stacked=True,
    doc="cuLaunchKernelEx with the cooperative attribute.",
)
fn(
    "cuLaunchCooperativeKernelMultiDevice",
    [ptr("launchParamsList", "CUDA_LAUNCH_PARAMS *"), val("numDevices", U32), val("flags", U32)],
    need=INIT,
    stacked=True,
    doc="A cooperative launch on each device, which wait for each other as the flags say; grids of several devices "
    "cannot synchronize inside the kernel.",
)
fn(
    "cuLaunchHostFunc",
    [ptr("hStream", "CUstream"), ptr("fn", "CUhostFn"), ptr("userData", "void *")],
    doc="Call the program's function in stream order.",
)
fn(
    "cuStreamAddCallback",
    [ptr("hStream", "CUstream"), ptr("callback", "CUstreamCallback"), ptr("userData", "void *"), val("flags", U32)],
    doc="The older form of cuLaunchHostFunc.",
)
fn(
    "vgpuHostCallback",
    [val("callback", U32), handle("hStream", STREAM)],
    QUEUED,
    worker_before="CUDA_HOST_NODE_PARAMS callback = vgx_callback_of(s, req->callback)",
    calls="cuLaunchHostFunc",
    given=["hStream", "callback.fn", "callback.userData"],
    doc="Stop the stream here until the client has run this callback; in a capture with VGW_CALLBACK_OF_GRAPH.",
)
fn(
    "vgpuNextCallback",
    [out("callback", U32), out("status", I32)],
    WAITING,
    need=INIT,
    blocks=True,
    channel=SOCKET,
    turn=ASKS,
    doc="The next callback that is due; answered when there is one, and with NOT_READY after 10 s without.",
)
fn(
    "vgpuCallbackDone",
    [val("callback", U32)],
    QUEUED,
    need=INIT,
    channel=SOCKET,
    turn=OVERTAKES,
    doc="The client has run a callback: its stream goes on.",
)
