"""Contexts. Which one is current is state of a client thread; the worker learns it from each record's header."""

from protocol.gen.dsl import (
    CONTEXT,
    DEVICE,
    EVENT,
    I32,
    INIT,
    NOT_SUPPORTED,
    SIZE,
    U32,
    ULL,
    WAITING,
    fn,
    handle,
    kept,
    out,
    out_handle,
    ptr,
    struct_out,
    val,
)
from protocol.gen.model import Need

OR_CURRENT = handle("ctx", CONTEXT, optional=True)  # NULL: the current one

fn(
    "cuDevicePrimaryCtxRetain",
    [out_handle("pctx", CONTEXT), val("dev", DEVICE)],
    WAITING,
    need=INIT,
    guest="custom",
    host="custom",
    doc="Take the device's primary context; the first retain attaches a worker.",
)
fn(
    "cuDevicePrimaryCtxRelease_v2",
    [val("dev", DEVICE)],
    WAITING,
    need=INIT,
    guest="custom",
    host="custom",
    blocks=True,
    aliases=["cuDevicePrimaryCtxRelease"],
    doc="Give the primary context back; the last release destroys it.",
)
fn(
    "cuDevicePrimaryCtxReset_v2",
    [val("dev", DEVICE)],
    WAITING,
    need=INIT,
    guest="custom",
    host="custom",
    blocks=True,
    aliases=["cuDevicePrimaryCtxReset"],
    doc="Destroy the primary context's resources.",
)
fn(
    "cuDevicePrimaryCtxSetFlags_v2",
    [val("dev", DEVICE), val("flags", U32)],
    need=INIT,
    aliases=["cuDevicePrimaryCtxSetFlags"],
    doc="Scheduling flags; kept in the client, where the waiting happens.",
)
fn(
    "cuDevicePrimaryCtxGetState",
    [val("dev", DEVICE), out("flags", U32), out("active", I32)],
    need=INIT,
    doc="Flags, and whether the primary context is retained.",
)
fn(
    "cuCtxCreate_v2",
    [out_handle("pctx", CONTEXT), val("flags", U32), val("dev", DEVICE)],
    WAITING,
    need=INIT,
    guest="custom",
    worker_checks=["vgx_device_enter(s, req->dev)"],
    aliases=["cuCtxCreate"],
    doc="Make a context and push it.",
)
fn(
    "cuCtxCreate_v3",
    [
        ptr("pctx", "CUcontext *"),
        ptr("paramsArray", "void *"),
        val("numParams", I32),
        val("flags", U32),
        val("dev", DEVICE),
    ],
    need=INIT,
    doc="With execution affinity: only without parameters.",
)
fn(
    "cuCtxCreate_v4",
    [
        ptr("pctx", "CUcontext *"),
        ptr("ctxCreateParams", "const CUctxCreateParams *"),
        val("flags", U32),
        val("dev", DEVICE),
    ],
    need=INIT,
    doc="With creation parameters: none, or a struct that asks for nothing.",
)
fn(
    "cuCtxDestroy_v2",
    [handle("ctx", CONTEXT, ends=True)],
    WAITING,
    need=INIT,
    guest="custom",
    worker_after="vgx_ipc_context_destroyed(s)",
    blocks=True,
    aliases=["cuCtxDestroy"],
    doc="Destroy a context and everything in it.",
)
fn(
    "cuCtxAttach",
    [ptr("pctx", "CUcontext *"), val("flags", U32)],
    need=INIT,
    doc="Old usage count; as cuCtxGetCurrent.",
)
fn("cuCtxDetach", [ptr("ctx", "CUcontext")], need=INIT, doc="Old usage count: the last detach destroys.")
fn(
    "cuCtxPushCurrent_v2",
    [ptr("ctx", "CUcontext")],
    need=INIT,
    aliases=["cuCtxPushCurrent"],
    doc="Push onto the thread's stack.",
)
fn(
    "cuCtxPopCurrent_v2",
    [ptr("pctx", "CUcontext *")],
    need=INIT,
    aliases=["cuCtxPopCurrent"],
    doc="Pop the thread's stack.",
)
fn("cuCtxSetCurrent", [ptr("ctx", "CUcontext")], need=INIT, doc="Replace the top of the thread's stack.")
fn(
    "cuCtxGetCurrent",
    [kept("pctx", "CUcontext", "vgs_thread_top()")],
    need=INIT,
    doc="Top of the thread's stack, or NULL.",
)
fn("cuCtxGetDevice", [out("device", DEVICE)], need=INIT, doc="Device of the current context.")
fn(
    "cuCtxGetDevice_v2",
    [kept("device", "CUdevice", "ctx_object->device"), OR_CURRENT],
    need=INIT,
    doc="Device of a context.",
)
fn("cuCtxGetFlags", [out("flags", U32)], need=INIT, doc="Flags of the current context.")
fn("cuCtxSetFlags", [val("flags", U32)], doc="Change the current context's flags.")
fn(
    "cuCtxGetId",
    [OR_CURRENT, kept("ctxId", ULL, "ctx_object->unique_id")],
    need=INIT,
    doc="Number of a context, unique in the process.",
)
fn(
    "cuCtxGetApiVersion",
    [OR_CURRENT, kept("version", U32, "3020")],
    need=INIT,
    doc="API version of a context, 3020.",
)
fn(
    "cuCtxSynchronize",
    [],
    WAITING,
    blocks=True,
    asked="vgs_mirror_wait_context()",
    doc="Wait for all work of the current context.",
)
fn("cuCtxSynchronize_v2", [ptr("ctx", "CUcontext")], need=INIT, doc="Wait for all work of a context.")
# Nothing but cuCtxSetLimit changes a limit, so the worker is asked once for each. The driver may round a value.
fn(
    "cuCtxGetLimit",
    [out("pvalue", SIZE), val("limit", I32)],
    WAITING,
    client_before="uint64_t asked_at",
    checks=["vgs_limit_check(limit)"],
    answers={"vgs_limit_is_known(limit, pvalue, &asked_at)": "CUDA_SUCCESS"},
    client_after="vgs_limit_set(limit, pvalue_told, asked_at)",
    doc="A resource limit.",
)
fn(
    "cuCtxSetLimit",
    [val("limit", I32), val("value", SIZE)],
    WAITING,
    checks=["vgs_limit_changes(limit)"],
    client_after="vgs_limit_changes(limit)",
    client_failed="vgs_limit_changes(limit)",
    doc="Change a resource limit.",
)
fn(
    "cuCtxGetCacheConfig",
    [kept("pconfig", I32, "vgs_context_entered->cache_config")],
    doc="Preferred cache split; a hint that is kept.",
)
fn("cuCtxSetCacheConfig", [val("config", I32)], doc="Preferred cache split; a hint that is kept.")
fn(
    "cuCtxGetSharedMemConfig",
    [kept("pConfig", I32, "1")],
    doc="Shared memory bank size: four bytes.",
)
fn(
    "cuCtxSetSharedMemConfig",
    [val("config", I32, most=2)],
    asked="CUDA_SUCCESS",
    doc="Shared memory bank size; without effect, as no architecture since Kepler has configurable banks.",
)
fn(
    "cuCtxGetStreamPriorityRange",
    [out("leastPriority", I32), out("greatestPriority", I32)],
    doc="Range of stream priorities, from the inventory.",
)
fn("cuCtxResetPersistingL2Cache", [], asked="CUDA_SUCCESS", doc="No persisting lines exist to reset.")
# Only affects the current context's kernels; copies between devices do not need it.
PEER = handle("peerContext", CONTEXT)
fn(
    "cuCtxEnablePeerAccess",
    [PEER, val("Flags", U32)],
    WAITING,
    guest="custom",
    doc="Address another device's memory.",
    group="peer",
)
fn(
    "cuCtxDisablePeerAccess",
    [PEER],
    WAITING,
    guest="custom",
    blocks=True,
    doc="Undo cuCtxEnablePeerAccess.",
)
fn(
    "cuFlushGPUDirectRDMAWrites",
    [val("target", I32), val("scope", I32)],
    asked=NOT_SUPPORTED,
    doc="GPUDirect RDMA is not offered, so nothing is in flight: NOT_SUPPORTED.",
)

# Records or waits for the work of all streams of a context.
OF_CONTEXT = [handle("hCtx", CONTEXT), handle("hEvent", EVENT)]
fn(
    "cuCtxRecordEvent",
    OF_CONTEXT,
    WAITING,
    need=INIT,
    ordered_by_all=True,
    client_before="vgs_event_record_begin(hEvent_object, NULL, 0)",
    doc="Mark the point that all streams of a context have reached.",
)
fn(
    "cuCtxWaitEvent",
    OF_CONTEXT,
    WAITING,
    need=INIT,
    ordered_by_all=True,
    doc="Make all streams of a context wait for an event.",
)
fn(
    "cuCtxGetExecAffinity",
    [struct_out("pExecAffinity", "CUexecAffinityParam"), val("type", I32)],
    WAITING,
    simulator=False,
    doc="How many multiprocessors the current context may use.",
)

for scope, need in (("", Need.CONTEXT), ("Global", Need.NOTHING)):
    for verb, doc in (
        ("Get", "Read a setting of core dumps."),
        ("Set", "Keep a setting of core dumps; no dump is written."),
    ):
        fn(
            f"cuCoredump{verb}Attribute{scope}",
            [val("attrib", I32), ptr("value", "void *"), ptr("size", "size_t *")],
            need=need,
            doc=doc,
        )
fn(
    "cuDeviceGetDevResource",
    [val("device", DEVICE), ptr("resource", "CUdevResource *"), val("type", I32)],
    need=INIT,
    doc="A device's multiprocessors as a resource.",
)
fn(
    "cuCtxGetDevResource",
    [ptr("hCtx", "CUcontext"), ptr("resource", "CUdevResource *"), val("type", I32)],
    need=INIT,
    doc="A context's multiprocessors as a resource: all of the device's.",
)
