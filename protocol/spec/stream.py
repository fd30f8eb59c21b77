"""Streams. Flags and priorities are kept in the client; handles 1 and 2 are the legacy and per-thread streams."""

from protocol.gen.dsl import (
    EVENT,
    I32,
    INIT,
    QUEUED,
    STREAM,
    U32,
    U64,
    ULL,
    WAITING,
    fn,
    handle,
    kept,
    out,
    out_handle,
    ptr,
    val,
)
from protocol.gen.model import Param, Scalar

STREAM_ARG = handle("hStream", STREAM)

fn("cuStreamCreate", [ptr("phStream", "CUstream *"), val("Flags", U32)], doc="A stream of default priority.")
fn(
    "cuStreamCreateWithPriority",
    [
        out_handle("phStream", STREAM, make="vgs_stream_create(flags, priority)"),
        val("flags", U32, mask=1),
        val("priority", I32, sent="vgs_stream_priority(priority)"),
    ],
    QUEUED,
    doc="A stream; priorities out of range are clamped.",
)
fn(
    "cuStreamDestroy_v2",
    [handle("hStream", STREAM, ends=True, ending="vgs_graph_capture_abandon(hStream_object)")],
    QUEUED,
    aliases=["cuStreamDestroy"],
    doc="Destroy a stream once its work is done.",
)
fn(
    "cuStreamSynchronize",
    [handle("hStream", STREAM, uncaptured=True)],
    WAITING,
    asked="vgs_mirror_wait_stream(hStream_id)",
    blocks=True,
    doc="Wait for a stream.",
)
fn(
    "cuStreamQuery",
    [handle("hStream", STREAM, uncaptured=True)],
    WAITING,
    leaves_work=False,
    client_before="vgs_mirror_before_wait()",
    answers={"vgs_wait_stream_is_done(hStream_id)": "vgs_mirror_after(CUDA_SUCCESS, hStream_id)"},
    client_after="result = vgs_mirror_after(result, hStream_id)",
    doc="Whether a stream is idle.",
)
fn(
    "cuStreamWaitEvent",
    # Flag 1 is the external form, which matters inside a capture alone.
    [STREAM_ARG, handle("hEvent", EVENT, otherwise="vgs_ipc_event_wait"), val("Flags", U32, most=1)],
    QUEUED,
    client_before="bool captured = vgs_capture_status(hEvent_object->capture), "
    "capturing = hStream_object && vgs_capture_status(hStream_object->capture)",
    checks=["captured && !capturing && hStream_object ? vgs_mirror_before_capture(hStream_object) : CUDA_SUCCESS"],
    waits="captured || capturing",
    # What is over need not be waited for. A legacy stream that is waited in may end another stream's capture.
    answers={
        "!hEvent_object->capture && vgs_event_is_done(hEvent_object) && !vgs_diverted(VGS_CAPTURING)": "CUDA_SUCCESS"
    },
    # On an error (isolation, merge, ...) the capture is invalidated. On success it spreads to the waiting stream.
    client_failed="if (captured || capturing) "
    "vgs_capture_forbid(captured ? hEvent_object->capture : hStream_object->capture)",
    client_after="if (captured && !capturing && hStream_object) "
    "vgs_capture_spread(hStream_object, hEvent_object->capture)",
    doc="Make a stream wait for an event.",
)
fn(
    "cuStreamCopyAttributes",
    [handle("dst", STREAM, named=True), handle("src", STREAM, named=True)],
    WAITING,
    doc="Give a stream the attributes of another of its context.",
)


def of_stream(name: str, c: str | Scalar, member: str, of_default: str) -> Param:
    """A member of the client's object; the default stream has none."""
    return kept(name, c, f"hStream_object ? hStream_object->{member} : {of_default}")


GREEN_OF_STREAM = "hStream_object ? hStream_object->green : NULL"
CONTEXT_OF_STREAM = "vgs_object_handle(vgs_context_entered)"

fn("cuStreamGetFlags", [STREAM_ARG, of_stream("flags", U32, "flags", "CU_STREAM_DEFAULT")], doc="Flags of a stream.")
fn("cuStreamGetPriority", [STREAM_ARG, of_stream("priority", I32, "priority", "0")], doc="Priority of a stream.")
fn(
    "cuStreamGetId",
    [STREAM_ARG, of_stream("streamId", ULL, "unique_id", "1")],
    doc="Number of a stream, unique in the process.",
)
fn("cuStreamGetCtx", [STREAM_ARG, kept("pctx", "CUcontext", CONTEXT_OF_STREAM)], doc="Context of a stream.")
fn(
    "cuStreamGetCtx_v2",
    [STREAM_ARG, kept("pCtx", "CUcontext", CONTEXT_OF_STREAM), kept("pGreenCtx", "CUgreenCtx", GREEN_OF_STREAM)],
    doc="Context of a stream, and the green one that it was created in.",
)
fn(
    "cuStreamGetGreenCtx",
    [STREAM_ARG, kept("phCtx", "CUgreenCtx", GREEN_OF_STREAM)],
    doc="Green context that a stream was created in.",
)
fn(
    "cuStreamGetDevice",
    [STREAM_ARG, of_stream("device", I32, "device", "vgs_context_entered->device")],
    doc="Device of a stream.",
)
fn(
    "cuStreamIsCapturing",
    [STREAM_ARG, kept("captureStatus", I32, "hStream_object ? (int)vgs_capture_status(hStream_object->capture) : 0")],
    checks=["hStream_object ? CUDA_SUCCESS : vgs_capture_ask_legacy()"],
    doc="Whether a stream captures.",
)
for version, extra in (
    ("cuStreamGetCaptureInfo", []),
    (
        "cuStreamGetCaptureInfo_v2",
        [
            ptr("graph_out", "CUgraph *"),
            ptr("dependencies_out", "const CUgraphNode **"),
            ptr("numDependencies_out", "size_t *"),
        ],
    ),
    (
        "cuStreamGetCaptureInfo_v3",
        [
            ptr("graph_out", "CUgraph *"),
            ptr("dependencies_out", "const CUgraphNode **"),
            ptr("edgeData_out", "const void **"),
            ptr("numDependencies_out", "size_t *"),
        ],
    ),
):
    fn(
        version,
        [STREAM_ARG, out("captureStatus_out", I32), out("id_out", U64), *extra],
        doc="The capture of a stream; with a driver before 12.3 its graph and nodes are not told while it goes on.",
    )
fn(
    "cuThreadExchangeStreamCaptureMode",
    [ptr("mode", "int *")],
    need=INIT,
    doc="Capture mode of the thread, kept in the client.",
)
