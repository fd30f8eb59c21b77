"""Stream-ordered allocation."""

from protocol.gen.dsl import (
    DEVICE,
    DEVICEPTR,
    I32,
    INIT,
    MEMPOOL,
    QUEUED,
    SIZE,
    STREAM,
    U64,
    WAITING,
    fn,
    handle,
    out,
    out_handle,
    ptr,
    struct_in,
    val,
)

STREAM_ARG = handle("hStream", STREAM)
POOL = handle("pool", MEMPOOL)

fn(
    "cuMemAllocAsync",
    [out("dptr", DEVICEPTR), val("bytesize", SIZE), STREAM_ARG],
    WAITING,
    guest="custom",
    doc="Allocate in stream order.",
)
fn(
    "cuMemAllocFromPoolAsync",
    [out("dptr", DEVICEPTR), val("bytesize", SIZE), POOL, STREAM_ARG],
    WAITING,
    guest="custom",
    doc="Allocate from a pool in stream order.",
)
fn(
    "cuMemFreeAsync",
    [val("dptr", DEVICEPTR), STREAM_ARG],
    QUEUED,
    guest="custom",
    host="custom",
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
    [out_handle("pool", MEMPOOL), val("dev", DEVICE)],
    WAITING,
    need=INIT,
    guest="custom",
    doc="The device's current pool.",
)
fn(
    "cuDeviceSetMemPool",
    [val("dev", DEVICE), POOL],
    WAITING,
    need=INIT,
    guest="custom",
    doc="Choose the device's current pool.",
)
fn(
    "cuMemPoolCreate",
    [out_handle("pool", MEMPOOL), struct_in("poolProps", "CUmemPoolProps")],
    WAITING,
    need=INIT,
    guest="custom",
    host="custom",
    doc="Make a pool.",
)
fn("cuMemPoolDestroy", [POOL], WAITING, need=INIT, guest="custom", host="custom", doc="Destroy a pool.")
fn("cuMemPoolTrimTo", [POOL, val("minBytesToKeep", SIZE)], WAITING, need=INIT, doc="Give unused memory of a pool back.")
# An attribute is an int for ids 1..3 and a u64 from 4 on; both fit a u64 on the wire.
fn(
    "cuMemPoolSetAttribute",
    [POOL, val("attr", I32), ptr("value", "void *")],
    WAITING,
    need=INIT,
    wire=[POOL, val("attr", I32), val("value", U64)],
    doc="Change an attribute of a pool.",
)
fn(
    "cuMemPoolGetAttribute",
    [POOL, val("attr", I32), ptr("value", "void *")],
    WAITING,
    need=INIT,
    wire=[POOL, val("attr", I32), out("value", U64)],
    doc="An attribute of a pool.",
)
fn(
    "cuMemPoolSetAccess",
    [POOL, ptr("map", "const CUmemAccessDesc *"), val("count", SIZE)],
    need=INIT,
    doc="Who may address a pool's memory.",
)
fn(
    "cuMemPoolGetAccess",
    [out("flags", I32), POOL, ptr("location", "CUmemLocation *")],
    need=INIT,
    doc="Who may address a pool's memory.",
)
