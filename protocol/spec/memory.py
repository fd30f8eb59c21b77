"""Device memory, pinned and managed memory. The client knows every allocation, so it classifies and checks pointers."""

from protocol.gen.dsl import (
    ADDRESS,
    BESIDE,
    DEVICE,
    DEVICEPTR,
    I32,
    INIT,
    INVALID_VALUE,
    NOT_SUPPORTED,
    OVERTAKES,
    QUEUED,
    SIZE,
    SOCKET,
    STREAM,
    U32,
    U64,
    ULL,
    WAITING,
    bytes_in,
    bytes_out,
    fn,
    handle,
    out,
    out_range,
    own_export,
    ptr,
    struct_value,
    val,
)

STREAM_ARG = handle("hStream", STREAM)
GIVEN_BACK = "vgs_send_cuMemFree_v2(taken)"

fn(
    "cuMemGetInfo_v2",
    [out("free", SIZE, optional=True), out("total", SIZE, optional=True)],
    WAITING,
    doc="Free and total device memory in bytes.",
)
fn(
    "cuMemAlloc_v2",
    [out_range("dptr", "bytesize", "VGS_RANGE_DEVICE", GIVEN_BACK), val("bytesize", SIZE, nonzero=True)],
    WAITING,
    unsafe=True,
    stacked=True,
    doc="Allocate device memory. Waits: the address is the worker's to give.",
)
fn(
    "cuMemAllocPitch_v2",
    [
        out_range("dptr", "vgs_rows_nbytes(pPitch_told, Height)", "VGS_RANGE_DEVICE", GIVEN_BACK),
        out("pPitch", SIZE),
        val("WidthInBytes", SIZE, nonzero=True),
        val("Height", SIZE, nonzero=True),
        val("ElementSizeBytes", U32, among=(4, 8, 16)),
    ],
    WAITING,
    unsafe=True,
    stacked=True,
    doc="Allocate rows padded for coalesced access.",
)
fn(
    "cuMemFree_v2",
    [val("dptr", DEVICEPTR)],
    WAITING,
    answers={
        "!dptr": "CUDA_SUCCESS",
        "!vgs_range_end(dptr)": "vgs_external_free(dptr)",
        "vgs_apart_holds(dptr)": "vgs_apart_free(dptr)",
    },
    worker_before="vgx_ipc_freed(s, req->dptr)",
    blocks=True,
    stacked=True,
    doc="Free device memory.",
)
fn(
    "cuMemGetAddressRange_v2",
    [out("pbase", DEVICEPTR), out("psize", SIZE), val("dptr", DEVICEPTR)],
    doc="Allocation around an address.",
)
fn(
    "cuMemHostAlloc",
    [ptr("pp", "void **"), val("bytesize", SIZE), val("Flags", U32)],
    doc="Pinned host memory: shared with the worker where the channel can.",
)
fn(
    "cuMemAllocHost_v2",
    [ptr("pp", "void **"), val("bytesize", SIZE)],
    aliases=["cuMemAllocHost"],
    doc="cuMemHostAlloc without flags.",
)
fn("cuMemFreeHost", [ptr("p", "void *")], doc="Free pinned host memory.")
fn(
    "cuMemHostGetDevicePointer_v2",
    [out("pdptr", DEVICEPTR), ptr("p", "void *"), val("Flags", U32)],
    doc="Device address of pinned memory: the same.",
)
fn("cuMemHostGetFlags", [out("pFlags", U32), ptr("p", "void *")], doc="Flags of a pinned allocation.")
fn(
    "cuMemHostRegister_v2",
    [ptr("p", "void *"), val("bytesize", SIZE), val("Flags", U32)],
    aliases=["cuMemHostRegister"],
    doc="Note the program's own memory as pinned.",
)
fn("cuMemHostUnregister", [ptr("p", "void *")], doc="Undo cuMemHostRegister.")
fn(
    "cuPointerGetAttribute",
    [ptr("data", "void *"), val("attribute", I32), val("ptr", DEVICEPTR)],
    need=INIT,
    doc="What is known of an address.",
)
fn(
    "cuPointerGetAttributes",
    [val("numAttributes", U32), ptr("attributes", "int *"), ptr("data", "void **"), val("ptr", DEVICEPTR)],
    need=INIT,
    doc="Several attributes of an address at once.",
)
fn(
    "cuPointerSetAttribute",
    [ptr("value", "const void *"), val("attribute", I32), val("ptr", DEVICEPTR)],
    need=INIT,
    doc="SYNC_MEMOPS: synchronous copies and fills of an allocation are complete on return.",
)
fn(
    "cuMemGetHandleForAddressRange",
    [ptr("handle"), val("dptr", DEVICEPTR), val("size", SIZE), val("handleType", I32), val("flags", ULL)],
    need=INIT,
    refuses={
        "!handle || !size || dptr % 4096 || size % 4096 || handleType != 1 || flags > 1": INVALID_VALUE,
        "!vgs_place_is_known(dptr, size)": INVALID_VALUE,
    },
    asked=NOT_SUPPORTED,
    doc="A dma-buf is for a device of the host: NOT_SUPPORTED, as CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED is 0.",
)

# Managed memory: shared as pinned memory is.
fn(
    "cuMemAllocManaged",
    [out("dptr", DEVICEPTR), val("bytesize", SIZE), val("flags", U32)],
    stacked=True,
    doc="Memory that host and device use at one address; a copy where the channel shares no memory.",
)
LOCATION = struct_value("location", "CUmemLocation")
RANGE = [val("devPtr", DEVICEPTR), val("count", SIZE)]
fn("cuMemAdvise", [*RANGE, val("advice", I32), val("device", DEVICE)], doc="Advice about managed memory: kept.")
fn("cuMemAdvise_v2", [*RANGE, val("advice", I32), LOCATION], doc="Advice about managed memory: kept.")
fn(
    "cuMemPrefetchAsync",
    [*RANGE, val("dstDevice", DEVICE), ptr("hStream", "CUstream")],
    doc="Where managed memory will be used: kept; nothing moves.",
)
fn(
    "cuMemPrefetchAsync_v2",
    [*RANGE, LOCATION, val("flags", U32), ptr("hStream", "CUstream")],
    doc="Where managed memory will be used: kept; nothing moves.",
)
fn(
    "cuMemRangeGetAttribute",
    [ptr("data", "void *"), val("dataSize", SIZE), val("attribute", I32), *RANGE],
    doc="Advice about managed memory.",
)
fn(
    "cuMemRangeGetAttributes",
    [
        ptr("data", "void **"),
        ptr("dataSizes", "size_t *"),
        ptr("attributes", "int *"),
        val("numAttributes", SIZE),
        *RANGE,
    ],
    doc="Several at once.",
)
fn(
    "cuStreamAttachMemAsync",
    [ptr("hStream", "CUstream"), val("dptr", DEVICEPTR), val("length", SIZE), val("flags", U32)],
    doc="Who uses managed memory: checked; everybody may.",
)

# Pinned memory that both processes map.
fn(
    "vgpuHostMap",
    [val("address", ADDRESS), val("nbytes", SIZE)],
    WAITING,
    channel=SOCKET,
    descriptor=True,
    doc="Map the attached memfd at the client's own address and make it device-accessible.",
)
fn(
    "vgpuHostMapFile",
    [val("address", ADDRESS), val("nbytes", SIZE), val("offset", U64), val("read_only", U32)],
    WAITING,
    channel=SOCKET,
    descriptor=True,
    doc="As vgpuHostMap, of a file of the program's own in memory, which need not be sealed.",
    group="register",
)
fn(
    "vgpuHostMapAt",
    [val("address", ADDRESS), val("nbytes", SIZE), val("offset", U64)],
    WAITING,
    doc="As vgpuHostMap, of memory at `offset` in the session's share of a region (wire.md).",
)
fn(
    "vgpuHostReserve",
    [val("address", ADDRESS), val("nbytes", SIZE)],
    WAITING,
    doc="As vgpuHostMap, of the worker's own memory, where none is shared: for vgpuHostWrite, vgpuHostRead.",
)
fn(
    "vgpuHostWrite",
    [val("address", ADDRESS), val("nbytes", SIZE), bytes_in("bytes", "nbytes", data=True)],
    QUEUED,
    need=INIT,
    channel=BESIDE,
    turn=OVERTAKES,
    worker="vgx_move_pinned(s, req->address, NULL, bytes, req->nbytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE",
    doc="Bytes into memory of vgpuHostReserve.",
)
fn(
    "vgpuHostRead",
    [val("address", ADDRESS), val("nbytes", SIZE), bytes_out("bytes", "nbytes")],
    WAITING,
    need=INIT,
    turn=OVERTAKES,
    worker="vgx_move_pinned(s, req->address, bytes, NULL, req->nbytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE",
    doc="Bytes from memory of vgpuHostReserve.",
)
fn(
    "vgpuHostChanges",
    [
        val("begin", U64),
        val("pages_nbytes", U32),
        bytes_in("pages", "pages_nbytes"),
        val("capacity", SIZE),
        bytes_out("changes", "capacity"),
        out("filled", U64),
        out("next", U64),
    ],
    WAITING,
    need=INIT,
    channel=BESIDE,
    turn=OVERTAKES,
    doc="Of memory of vgpuHostReserve, the pages that have changed since the client was sent or has written them.",
)
fn(
    "vgpuHostUnmap",
    [val("address", ADDRESS)],
    WAITING,
    blocks=True,
    doc="Undo vgpuHostMap or vgpuHostMapAt.",
)
fn(
    "vgpuDeviceFile",
    [val("device", DEVICE)],
    WAITING,
    need=INIT,
    channel=SOCKET,
    descriptor=True,
    calls="device_file",
    given=["device", "fd"],
    doc="Have a simulated device's memory lie in the attached memfd (vgw_device_memory.h).",
)

# Functions of the guest library for code that knows vgpu (vgs_alias.h).
own_export("vgpuDeviceIsSimulated")
own_export("vgpuHostAlias")
