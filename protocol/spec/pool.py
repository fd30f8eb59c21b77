"""Stream-ordered allocation."""

from protocol.gen.dsl import (
    DEVICE,
    DEVICEPTR,
    I32,
    INIT,
    INVALID_VALUE,
    MEMPOOL,
    NOT_SUPPORTED,
    QUEUED,
    SIZE,
    STREAM,
    ULL,
    WAITING,
    array_in,
    device_at,
    fixed_at,
    fn,
    handle,
    out,
    out_handle,
    out_range,
    ptr,
    struct_in,
    struct_out,
    val,
    word_in,
    word_out,
)

STREAM_ARG = handle("hStream", STREAM)
POOL = handle("pool", MEMPOOL)
KIND = "vgs_pool_range_kind(hStream_object)"
GIVEN_BACK = "vgs_send_cuMemFreeAsync(taken, hStream_id, false)"
CAPTURES = "(hStream_object && vgs_capture_status(hStream_object->capture))"
OF_STREAM = "hStream_object ? hStream_object->device : vgs_context_entered->device"
GIVEN_BACK_AT_ONCE = "vgs_send_cuMemFree_v2(taken)"

fn(
    "cuMemAllocAsync",
    [
        out_range("dptr", "bytesize", KIND, GIVEN_BACK, ordered=True, device=OF_STREAM),
        val("bytesize", SIZE, nonzero=True),
        STREAM_ARG,
    ],
    WAITING,
    stacked=True,
    doc="Allocate in stream order.",
)
fn(
    "cuMemAllocFromPoolAsync",
    [
        out_range("dptr", "bytesize", KIND, GIVEN_BACK, ordered=True, device="pool_object->device"),
        val("bytesize", SIZE, nonzero=True),
        POOL,
        STREAM_ARG,
    ],
    WAITING,
    stacked=True,
    doc="Allocate from a pool in stream order.",
)
fn(
    "cuMemFreeAsync",
    [val("dptr", DEVICEPTR), STREAM_ARG],
    QUEUED,
    answers={
        "!dptr": "CUDA_SUCCESS",
        "!vgs_range_end(dptr)": INVALID_VALUE,
        f"vgs_apart_holds(dptr) && !{CAPTURES}": "vgs_apart_free_in_order(dptr, hStream)",  # else the driver refuses it
    },
    worker_before="vgx_ipc_freed(s, req->dptr)",
    stacked=True,
    doc="Free in stream order.",
)
fn(
    "cuDeviceGetDefaultMemPool",
    [out_handle("pool_out", MEMPOOL), val("dev", DEVICE)],
    WAITING,
    need=INIT,
    guest="custom",
    doc="The device's own pool.",
)
fn(
    "cuDeviceGetMemPool",
    [ptr("pool", "CUmemoryPool *"), val("dev", DEVICE)],
    need=INIT,
    doc="The device's current pool.",
)
fn(
    "cuDeviceSetMemPool",
    [val("dev", DEVICE), POOL],
    WAITING,
    need=INIT,
    refuses={"pool_object->imported || pool_object->device != dev": INVALID_VALUE},
    client_after="vgs_pool_set_current(dev, pool)",
    doc="Choose the device's current pool.",
)
fn(
    "cuMemPoolCreate",
    [
        out_handle("pool", MEMPOOL, device="poolProps->location.id"),
        struct_in(
            "poolProps",
            "CUmemPoolProps",
            device_at("location.id"),
            fixed_at("win32SecurityAttributes"),
        ),
    ],
    WAITING,
    need=INIT,
    # Host pools are not offered, nor pools that are shared by other means than descriptors.
    refuses={
        "poolProps->allocType != 1 /* pinned */": INVALID_VALUE,
        "poolProps->location.type != 1 /* device */": NOT_SUPPORTED,
        "!vgs_pool_types_are_offered(poolProps)": NOT_SUPPORTED,
    },
    doc="Make a pool.",
)
fn(
    "cuMemPoolDestroy",
    [handle("pool", MEMPOOL, ends=True)],
    WAITING,
    need=INIT,
    refuses={"vgs_pool_is_default(pool_object)": INVALID_VALUE},
    worker_before="vgx_share_released(s, VGX_IPC_POOL, req->pool)",
    doc="Destroy a pool.",
)
fn("cuMemPoolTrimTo", [POOL, val("minBytesToKeep", SIZE)], WAITING, need=INIT, doc="Give unused memory of a pool back.")
# Attributes 1 to 3 are ints, 4 (release threshold) to 8 are 64 bits wide.
ATTRIBUTE = val("attr", I32, most=8, nonzero=True)
fn(
    "cuMemPoolSetAttribute",
    [POOL, ATTRIBUTE, word_in("value", "attr >= 4")],
    WAITING,
    need=INIT,
    doc="Change an attribute of a pool.",
)
fn(
    "cuMemPoolGetAttribute",
    [POOL, ATTRIBUTE, word_out("value", "attr >= 4")],
    WAITING,
    need=INIT,
    doc="An attribute of a pool.",
)
fn(
    "cuMemPoolSetAccess",
    [POOL, array_in("map", "CUmemAccessDesc", "count", 64, (device_at("location.id"),)), val("count", SIZE)],
    WAITING,
    need=INIT,
    refuses={"vgs_access_is_foreign(map, count)": INVALID_VALUE},
    doc="Which devices may use a pool's memory.",
    group="peer",
)
fn(
    "cuMemPoolGetAccess",
    [out("flags", I32), POOL, struct_in("location", "CUmemLocation", device_at("id"))],
    WAITING,
    need=INIT,
    refuses={"location->type != 1 /* device */": INVALID_VALUE},
    doc="Which access a device has to a pool's memory.",
)
# A pool that other clients of the tenant use, and its allocations: tokens of vgpud's, as for cuIpc (vgx_share.c).
NAMED = "CUmemPoolPtrExportData"
IMPORTED = out_range("ptr_out", "nbytes_told", "VGS_RANGE_POOL", GIVEN_BACK_AT_ONCE)
fn(
    "cuMemPoolExportToShareableHandle",
    [ptr("handle_out", "void *"), ptr("pool", "CUmemoryPool"), val("handleType", I32), val("flags", ULL)],
    WAITING,
    need=INIT,
    backend=False,
    guest="custom",
    host="custom",
    wire=[struct_out("token", NAMED), POOL],
    doc="A descriptor by which another client of the tenant gets a pool; other types are NOT_SUPPORTED.",
    group="export",
)
fn(
    "cuMemPoolImportFromShareableHandle",
    [ptr("pool_out", "CUmemoryPool *"), ptr("handle", "void *"), val("handleType", I32), val("flags", ULL)],
    WAITING,
    need=INIT,
    backend=False,
    guest="custom",
    host="custom",
    wire=[out_handle("pool", MEMPOOL), struct_in("token", NAMED)],
    doc="Another client's pool, for its allocations: it gives no memory of its own.",
    group="export",
)
fn(
    "cuMemPoolExportPointer",
    [struct_out("shareData_out", NAMED), val("ptr", DEVICEPTR)],
    WAITING,
    backend=False,
    host="custom",
    doc="What names an allocation of a shared pool to another client that has the pool.",
    group="export",
)
fn(
    "cuMemPoolImportPointer",
    [IMPORTED, POOL, struct_in("shareData", NAMED)],
    WAITING,
    backend=False,
    host="custom",
    wire=[IMPORTED, out("nbytes", SIZE), POOL, struct_in("shareData", NAMED)],
    refuses={"!pool_object->imported": INVALID_VALUE},
    doc="An allocation of another client's pool.",
    group="export",
)
# As of 13.0 a pool's place is a location, and there may be several kinds of memory.
PLACE = [ptr("location", "CUmemLocation *"), val("type", I32)]
fn("cuMemGetDefaultMemPool", [ptr("pool_out", "CUmemoryPool *"), *PLACE], need=INIT, doc="A place's own pool.")
fn("cuMemGetMemPool", [ptr("pool", "CUmemoryPool *"), *PLACE], need=INIT, doc="A place's current pool.")
fn("cuMemSetMemPool", [*PLACE, ptr("pool", "CUmemoryPool")], need=INIT, doc="Choose a place's current pool.")
