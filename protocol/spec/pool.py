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
    val,
    word_in,
    word_out,
)

STREAM_ARG = handle("hStream", STREAM)
POOL = handle("pool", MEMPOOL)
KIND = "vgs_pool_range_kind(hStream_object)"
GIVEN_BACK = "vgs_send_cuMemFreeAsync(taken, hStream_id, false)"

fn(
    "cuMemAllocAsync",
    [out_range("dptr", "bytesize", KIND, GIVEN_BACK), val("bytesize", SIZE, nonzero=True), STREAM_ARG],
    WAITING,
    doc="Allocate in stream order.",
)
fn(
    "cuMemAllocFromPoolAsync",
    [out_range("dptr", "bytesize", KIND, GIVEN_BACK), val("bytesize", SIZE, nonzero=True), POOL, STREAM_ARG],
    WAITING,
    doc="Allocate from a pool in stream order.",
)
fn(
    "cuMemFreeAsync",
    [val("dptr", DEVICEPTR), STREAM_ARG],
    QUEUED,
    answers={"!dptr": "CUDA_SUCCESS", "!vgs_range_end(dptr)": INVALID_VALUE},
    worker_before="vgx_ipc_freed(s, req->dptr)",
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
    refuses={"pool_object->device != dev": INVALID_VALUE},
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
            fixed_at("handleTypes"),
        ),
    ],
    WAITING,
    need=INIT,
    # Neither host pools nor pools that other processes share are offered.
    refuses={
        "poolProps->allocType != 1 /* pinned */": INVALID_VALUE,
        "poolProps->location.type != 1 /* device */ || poolProps->handleTypes": NOT_SUPPORTED,
    },
    doc="Make a pool.",
)
fn(
    "cuMemPoolDestroy",
    [handle("pool", MEMPOOL, ends=True)],
    WAITING,
    need=INIT,
    refuses={"vgs_pool_is_default(pool_object)": INVALID_VALUE},
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
)
fn(
    "cuMemPoolGetAccess",
    [out("flags", I32), POOL, struct_in("location", "CUmemLocation", device_at("id"))],
    WAITING,
    need=INIT,
    refuses={"location->type != 1 /* device */": INVALID_VALUE},
    doc="Which access a device has to a pool's memory.",
)
# As of 13.0 a pool's place is a location, and there may be several kinds of memory.
PLACE = [ptr("location", "CUmemLocation *"), val("type", I32)]
fn("cuMemGetDefaultMemPool", [ptr("pool_out", "CUmemoryPool *"), *PLACE], need=INIT, doc="A place's own pool.")
fn("cuMemGetMemPool", [ptr("pool", "CUmemoryPool *"), *PLACE], need=INIT, doc="A place's current pool.")
fn("cuMemSetMemPool", [*PLACE, ptr("pool", "CUmemoryPool")], need=INIT, doc="Choose a place's current pool.")
