"""Events."""

from protocol.gen.dsl import EVENT, F32, QUEUED, STREAM, U32, WAITING, fn, handle, out, out_handle, ptr, val

EVENT_ARG = handle("hEvent", EVENT)
STREAM_ARG = handle("hStream", STREAM)

fn("cuEventCreate", [out_handle("phEvent", EVENT), val("Flags", U32)], QUEUED, guest="custom", doc="An event.")
fn(
    "cuEventDestroy_v2",
    [handle("hEvent", EVENT, ends=True, otherwise="vgs_ipc_event_destroy")],
    QUEUED,
    aliases=["cuEventDestroy"],
    doc="Destroy an event.",
)
fn("cuEventRecord", [EVENT_ARG, ptr("hStream", "CUstream")], doc="cuEventRecordWithFlags without flags.")
fn(
    "cuEventRecordWithFlags",
    [EVENT_ARG, STREAM_ARG, val("flags", U32)],
    QUEUED,
    guest="custom",
    doc="Mark this point of a stream.",
)
fn("cuEventQuery", [EVENT_ARG], WAITING, guest="custom", leaves_work=False, doc="Whether the marked point is reached.")
fn("cuEventSynchronize", [EVENT_ARG], WAITING, guest="custom", blocks=True, doc="Wait for the marked point.")
fn(
    "cuEventElapsedTime_v2",
    [out("pMilliseconds", F32), handle("hStart", EVENT), handle("hEnd", EVENT)],
    WAITING,
    guest="custom",
    leaves_work=False,
    aliases=["cuEventElapsedTime"],
    doc="Time between two events, in milliseconds.",
)
