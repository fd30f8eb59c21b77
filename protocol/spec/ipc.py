"""Memory and events shared between clients of one tenant. A handle is a token of vgpud's, never the driver's own."""

from protocol.gen.dsl import (
    DEVICEPTR,
    INVALID_VALUE,
    IPC_EVENT,
    SIZE,
    STREAM,
    U32,
    WAITING,
    fn,
    handle,
    out,
    out_handle,
    ptr,
    struct_in,
    struct_out,
    struct_value,
    val,
)

# The driver's own functions are not called: the executor has handles of its own (vgx_ipc.c).
MEMORY, EVENT = "CUipcMemHandle", "CUipcEventHandle"
EVENT_ARG = handle("event", IPC_EVENT)
NEW_EVENT = out_handle("event", IPC_EVENT)
STREAM_ARG = handle("hStream", STREAM)

fn(
    "cuIpcGetMemHandle",
    [ptr("pHandle", f"{MEMORY} *"), val("dptr", DEVICEPTR)],
    WAITING,
    backend=False,
    guest="custom",
    host="custom",
    wire=[struct_out("handle", MEMORY), val("dptr", DEVICEPTR)],
    doc="A handle by which another client of the tenant opens the allocation around an address.",
    group="ipc",
)
fn(
    "cuIpcOpenMemHandle_v2",
    [ptr("pdptr", "CUdeviceptr *"), struct_value("handle", MEMORY), val("Flags", U32)],
    WAITING,
    backend=False,
    guest="custom",
    host="custom",
    wire=[out("base", DEVICEPTR), out("nbytes", SIZE), struct_in("handle", MEMORY), val("flags", U32)],
    aliases=["cuIpcOpenMemHandle"],
    doc="Map another client's allocation; again, if it is mapped already.",
    group="ipc",
)
fn(
    "cuIpcCloseMemHandle",
    [val("dptr", DEVICEPTR)],
    WAITING,
    refuses={"!vgs_ipc_is_opened(dptr)": INVALID_VALUE},
    client_after="vgs_range_close(dptr)",
    blocks=True,
    doc="Undo one cuIpcOpenMemHandle.",
)
fn(
    "cuIpcGetEventHandle",
    [struct_out("pHandle", EVENT), EVENT_ARG],
    WAITING,
    host="custom",
    backend=False,
    doc="A handle by which another client of the tenant opens an interprocess event.",
    group="ipc",
)
fn(
    "cuIpcOpenEventHandle",
    [out_handle("phEvent", IPC_EVENT), struct_value("handle", EVENT)],
    WAITING,
    host="custom",
    backend=False,
    doc="Another client's interprocess event.",
    group="ipc",
)

# An interprocess event is the executor's: a page that both workers map (vgx_ipc_event.c). Each call waits for its
# answer, so that what the program does next, in whichever process, comes after it.
fn(
    "vgpuIpcEventCreate",
    [NEW_EVENT],
    WAITING,
    doc="cuEventCreate with CU_EVENT_INTERPROCESS.",
)
fn("vgpuIpcEventDestroy", [handle("event", IPC_EVENT, ends=True)], WAITING, doc="cuEventDestroy of one.")
fn(
    "vgpuIpcEventRecord",
    [EVENT_ARG, STREAM_ARG],
    WAITING,
    doc="cuEventRecord of one.",
)
fn(
    "vgpuIpcEventWait",
    [EVENT_ARG, STREAM_ARG],
    WAITING,
    blocks=True,
    leaves_work=True,
    doc="cuStreamWaitEvent for one.",
)
fn("vgpuIpcEventQuery", [EVENT_ARG], WAITING, doc="cuEventQuery of one.")
fn(
    "vgpuIpcEventSynchronize",
    [EVENT_ARG],
    WAITING,
    blocks=True,
    doc="cuEventSynchronize for one.",
)
