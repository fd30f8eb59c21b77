"""Events."""

from protocol.gen.dsl import (
    EVENT,
    F32,
    INVALID_HANDLE,
    QUEUED,
    STREAM,
    U32,
    WAITING,
    fn,
    handle,
    out,
    out_handle,
    ptr,
    val,
)

EVENT_ARG = handle("hEvent", EVENT)
STREAM_ARG = handle("hStream", STREAM)
# A captured event cannot be queried; a query invalidates the capture (programming guide).
CAPTURED = {"vgs_capture_status(hEvent_object->capture)": "vgs_event_captured(hEvent_object)"}

fn(
    "cuEventCreate",
    [out_handle("phEvent", EVENT, flags="Flags"), val("Flags", U32, mask=7)],
    QUEUED,
    answers={"Flags & CU_EVENT_INTERPROCESS": "vgs_ipc_event_create(phEvent, Flags)"},
    doc="An event.",
)
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
    # Flag 1 is the external form, which matters inside a capture alone.
    [handle("hEvent", EVENT, otherwise="vgs_ipc_event_record"), STREAM_ARG, val("flags", U32, most=1)],
    QUEUED,
    client_before="uint64_t capture = 0, idle_at = vgs_event_idle_at(hEvent_object, hStream_object); "
    "bool complete = idle_at && !flags && vgs_event_record_idle(hEvent_object, hStream_id, idle_at); "
    "if (!complete) capture = vgs_event_record_begin(hEvent_object, hStream_object, flags)",
    answers={"complete": "CUDA_SUCCESS"},
    client_after="if (!capture) vgs_event_record_end(hEvent_object, hStream_id, idle_at)",
    doc="Mark this point of a stream.",
)
fn(
    "cuEventQuery",
    [handle("hEvent", EVENT, otherwise="vgs_ipc_event_query")],
    WAITING,
    leaves_work=False,
    client_before="uint64_t entry = vgs_event_entry(hEvent_object); vgs_mirror_before_wait()",
    answers=CAPTURED | {"vgs_event_is_done(hEvent_object)": "vgs_mirror_after(CUDA_SUCCESS, hEvent_object->stream)"},
    client_after="result = vgs_mirror_after_event(result, hEvent_object, entry)",
    doc="Whether the marked point is reached.",
)
fn(
    "cuEventSynchronize",
    [handle("hEvent", EVENT, otherwise="vgs_ipc_event_synchronize")],
    WAITING,
    blocks=True,
    client_before="uint64_t entry = vgs_event_entry(hEvent_object); vgs_mirror_before_wait()",
    answers=CAPTURED
    | {
        "vgs_event_is_done(hEvent_object)": "vgs_mirror_after(CUDA_SUCCESS, hEvent_object->stream)",
        # No work was submitted to the event's stream since the event: waiting for the stream is enough.
        "vgs_event_is_last(hEvent_object)": "vgs_mirror_wait_stream(hEvent_object->stream)",
    },
    client_after="result = vgs_mirror_after_event(result, hEvent_object, entry)",
    doc="Wait for the marked point.",
)
fn(
    "cuEventElapsedTime_v2",
    [out("pMilliseconds", F32), handle("hStart", EVENT), handle("hEnd", EVENT)],
    WAITING,
    leaves_work=False,
    refuses={"!vgs_event_is_timed(hStart_object) || !vgs_event_is_timed(hEnd_object)": INVALID_HANDLE},
    aliases=["cuEventElapsedTime"],
    doc="Time between two events, in milliseconds.",
)
