"""Device memory, pinned memory, copies. The client knows every allocation, so it classifies and checks pointers."""

from protocol.gen.dsl import (
    ADDRESS,
    DEVICE,
    DEVICEPTR,
    I32,
    INIT,
    INVALID_VALUE,
    QUEUED,
    SIZE,
    SOCKET,
    STREAM,
    U8,
    U16,
    U32,
    U64,
    WAITING,
    bytes_in,
    bytes_out,
    fn,
    handle,
    out,
    out_range,
    own_export,
    ptr,
    struct,
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
fn("cuMemGetInfo", [out("free", U32), out("total", U32)], doc="The 32-bit form: at most 4 GiB - 1.")
fn(
    "cuMemAlloc_v2",
    [out_range("dptr", "bytesize", "DEVICE", GIVEN_BACK), val("bytesize", SIZE, nonzero=True)],
    WAITING,
    unsafe=True,
    doc="Allocate device memory. Waits: the address is the worker's to give.",
)
fn(
    "cuMemAllocPitch_v2",
    [
        out_range("dptr", "vgs_rows_nbytes(pPitch_told, Height)", "DEVICE", GIVEN_BACK),
        out("pPitch", SIZE),
        val("WidthInBytes", SIZE, nonzero=True),
        val("Height", SIZE, nonzero=True),
        val("ElementSizeBytes", U32, among=(4, 8, 16)),
    ],
    WAITING,
    unsafe=True,
    doc="Allocate rows padded for coalesced access.",
)
fn(
    "cuMemFree_v2",
    [val("dptr", DEVICEPTR)],
    WAITING,
    answers={"!dptr": "CUDA_SUCCESS", "!vgs_range_end(dptr)": "vgs_managed_free(dptr)"},
    worker_before="vgx_ipc_freed(s, req->dptr)",
    blocks=True,
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

# Copies. Each says its direction; which of the records below carries it, the client decides by the addresses.
HOST, DEVICE_SIDE = "VGS_PLACE_HOST", "VGS_PLACE_DEVICE"  # what an address is that the client does not know


def copied(dst: str, to: str, src: str, source: str, sync: str = "sync") -> str:
    """C that copies `ByteCount` bytes between addresses (vgs_copy.h)."""
    copy = struct(
        "struct vgs_copy", dst=f"(uintptr_t){dst}", src=f"(uintptr_t){src}", nbytes="ByteCount", dst_otherwise=to,
        src_otherwise=source, stream="hStream", sync=sync,
    )  # fmt: skip
    return f"vgs_copy({copy})"


fn(
    "cuMemcpyHtoDAsync_v2",
    [val("dstDevice", DEVICEPTR), bytes_in("srcHost", "ByteCount", data=True), val("ByteCount", SIZE), STREAM_ARG],
    QUEUED,
    asked=copied("dstDevice", DEVICE_SIDE, "srcHost", HOST),
    forms=["cuMemcpyHtoD_v2"],
    doc="Copy from pageable memory; the bytes travel with the record.",
)
fn(
    "cuMemcpyDtoHAsync_v2",
    [bytes_out("dstHost", "ByteCount"), val("srcDevice", DEVICEPTR), val("ByteCount", SIZE), STREAM_ARG],
    WAITING,
    asked=copied("dstHost", HOST, "srcDevice", DEVICE_SIDE),
    forms=["cuMemcpyDtoH_v2"],
    worker_after="result = s->backend->cuStreamSynchronize(hStream)",
    blocks=True,
    doc="Copy to pageable memory: waits for the stream, as the driver does.",
)
fn(
    "cuMemcpyDtoDAsync_v2",
    [val("dstDevice", DEVICEPTR), val("srcDevice", DEVICEPTR), val("ByteCount", SIZE), STREAM_ARG],
    QUEUED,
    # The synchronous form is queued, too, where both are device memory; a side may be pinned memory.
    asked=copied(
        "dstDevice",
        DEVICE_SIDE,
        "srcDevice",
        DEVICE_SIDE,
        "sync && (vgs_copy_is_host(dstDevice) || vgs_copy_is_host(srcDevice))",
    ),
    forms=["cuMemcpyDtoD_v2"],
    doc="Copy within device memory.",
)
fn(
    "cuMemcpyAsync",
    [val("dst", DEVICEPTR), val("src", DEVICEPTR), val("ByteCount", SIZE), STREAM_ARG],
    asked=copied("dst", HOST, "src", HOST),  # what the client does not know is the program's own memory
    forms=["cuMemcpy"],
    doc="Copy between addresses of any kind.",
)
PINNED_COPY = [val("dst", ADDRESS), val("src", ADDRESS), val("nbytes", SIZE), STREAM_ARG]
fn(
    "vgpuMemcpyPinnedToDevice",
    PINNED_COPY,
    QUEUED,
    calls="cuMemcpyHtoDAsync_v2",
    given=["dst", "(const void *)req->src", "nbytes", "hStream"],
    worker_answers={"!vgx_is_pinned(s, req->src, req->nbytes)": INVALID_VALUE},
    doc="Copy from shared pinned memory.",
)
fn(
    "vgpuMemcpyPinnedToHost",
    PINNED_COPY,
    QUEUED,
    calls="cuMemcpyDtoHAsync_v2",
    given=["(void *)req->dst", "src", "nbytes", "hStream"],
    worker_answers={"!vgx_is_pinned(s, req->dst, req->nbytes)": INVALID_VALUE},
    doc="Copy to shared pinned memory.",
)


def rectangle(**sides: str) -> str:
    return struct("CUDA_MEMCPY2D", **sides, WidthInBytes="req->width", Height="req->height")


PACKED = {"!vgx_rows_fill(req->width, req->height, req->nbytes)": "rows do not fill the rectangle"}
SRC = {"srcMemoryType": "CU_MEMORYTYPE_DEVICE", "srcDevice": "req->src", "srcPitch": "req->srcPitch"}
DST = {"dstMemoryType": "CU_MEMORYTYPE_DEVICE", "dstDevice": "req->dst", "dstPitch": "req->dstPitch"}
SHAPE = [val("width", SIZE), val("height", SIZE)]
fn(
    "vgpuMemcpy2DToDevice",
    [
        val("dst", DEVICEPTR),
        val("dstPitch", SIZE),
        *SHAPE,
        val("nbytes", SIZE),
        STREAM_ARG,
        bytes_in("rows", "nbytes", data=True),
    ],
    QUEUED,
    violations=PACKED,
    calls="cuMemcpy2DAsync_v2",
    given=[
        rectangle(srcMemoryType="CU_MEMORYTYPE_HOST", srcHost="rows", srcPitch="req->width", **DST),
        "hStream",
    ],
    doc="Rows, packed, to a pitched rectangle.",
)
fn(
    "vgpuMemcpy2DToHost",
    [
        bytes_out("rows", "nbytes"),
        val("src", DEVICEPTR),
        val("srcPitch", SIZE),
        *SHAPE,
        val("nbytes", SIZE),
        STREAM_ARG,
    ],
    WAITING,
    violations=PACKED,
    calls="cuMemcpy2DAsync_v2",
    given=[
        rectangle(dstMemoryType="CU_MEMORYTYPE_HOST", dstHost="rows", dstPitch="req->width", **SRC),
        "hStream",
    ],
    worker_after="result = s->backend->cuStreamSynchronize(hStream)",
    blocks=True,
    doc="A pitched rectangle to packed rows; waits for the stream.",
)
UNIFIED = {"srcMemoryType": "CU_MEMORYTYPE_UNIFIED", "dstMemoryType": "CU_MEMORYTYPE_UNIFIED"}
fn(
    "vgpuMemcpy2DOnDevice",
    [
        val("dst", DEVICEPTR),
        val("dstPitch", SIZE),
        val("src", DEVICEPTR),
        val("srcPitch", SIZE),
        *SHAPE,
        STREAM_ARG,
    ],
    QUEUED,
    worker_answers={
        "!req->width || !req->height": "CUDA_SUCCESS",
        "!vgx_box_is_reachable(s, req->src, req->srcPitch, 1, req->width, req->height, 1)": INVALID_VALUE,
        "!vgx_box_is_reachable(s, req->dst, req->dstPitch, 1, req->width, req->height, 1)": INVALID_VALUE,
    },
    calls="cuMemcpy2DAsync_v2",
    given=[rectangle(**(SRC | DST | UNIFIED)), "hStream"],
    doc="Copy a rectangle within device memory (or shared pinned memory).",
)
PEERS = [
    val("dstDevice", DEVICEPTR),
    ptr("dstContext", "CUcontext"),
    val("srcDevice", DEVICEPTR),
    ptr("srcContext", "CUcontext"),
    val("ByteCount", SIZE),
]
fn("cuMemcpyPeer", PEERS, doc="Copy between devices: one address space, so a device copy.")
fn(
    "cuMemcpyPeerAsync",
    [*PEERS, STREAM_ARG],
    refuses={"!vgs_context_find(dstContext) || !vgs_context_find(srcContext)": "CUDA_ERROR_INVALID_CONTEXT"},
    asked=copied("dstDevice", DEVICE_SIDE, "srcDevice", DEVICE_SIDE, "false"),
    doc="Copy between devices.",
)
for name, c, how, forms, doc in (
    (
        "cuMemcpy2DAsync_v2",
        "CUDA_MEMCPY2D",
        "vgs_copy_2d",
        ["cuMemcpy2D_v2", "cuMemcpy2DUnaligned_v2"],
        "Copy a rectangle.",
    ),
    ("cuMemcpy3DAsync_v2", "CUDA_MEMCPY3D", "vgs_copy_3d", ["cuMemcpy3D_v2"], "Copy a box."),
    (
        "cuMemcpy3DPeerAsync",
        "CUDA_MEMCPY3D_PEER",
        "vgs_copy_3d_peer",
        ["cuMemcpy3DPeer"],
        "Copy a box, between devices too.",
    ),
):
    fn(name, [ptr("pCopy", f"const {c} *"), STREAM_ARG], asked=f"{how}(pCopy, hStream, sync)", forms=forms, doc=doc)

# Fills. One of pinned memory is complete on return, unless it is asynchronous: the program reads without asking.
for bits, scalar in ((8, U8), (16, U16), (32, U32)):
    value = val({8: "uc", 16: "us", 32: "ui"}[bits], scalar)
    for dimensions, size, fields in (
        ("", [value, val("N", SIZE)], {"width": "N", "height": "1"}),
        (
            "2D",
            [val("dstPitch", SIZE), value, val("Width", SIZE), val("Height", SIZE)],
            {"pitch": "dstPitch", "width": "Width", "height": "Height"},
        ),
    ):
        fields |= {"address": "dstDevice", "element_nbytes": str(bits // 8), "stream": "hStream_id"}
        fn(
            f"cuMemsetD{dimensions}{bits}Async",
            [val("dstDevice", DEVICEPTR), *size, STREAM_ARG],
            QUEUED,
            client_before=f"struct vgs_fill *fill = {struct('struct vgs_fill', **fields)}",
            checks=["vgs_fill_check(fill)"],
            answers={"fill->empty": "CUDA_SUCCESS", "fill->local": f"vgs_fill_here(fill, {value.name})"},
            waits="fill->unknown",
            client_after="if (sync && fill->host) result = vgs_wait_stream(hStream_id)",
            forms=[f"cuMemsetD{dimensions}{bits}_v2"],
            doc=f"Fill {'a rectangle ' if dimensions else ''}with a {bits}-bit value.",
        )

# Managed memory: shared as pinned memory is.
fn(
    "cuMemAllocManaged",
    [out("dptr", DEVICEPTR), val("bytesize", SIZE), val("flags", U32)],
    doc="Memory that host and device use at one address, where the channel shares memory.",
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
    worker="vgx_move_pinned(s, req->address, NULL, bytes, req->nbytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE",
    doc="Bytes into memory of vgpuHostReserve.",
)
fn(
    "vgpuHostRead",
    [val("address", ADDRESS), val("nbytes", SIZE), bytes_out("bytes", "nbytes")],
    WAITING,
    need=INIT,
    worker="vgx_move_pinned(s, req->address, bytes, NULL, req->nbytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE",
    doc="Bytes from memory of vgpuHostReserve.",
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

# The guest library's own, for what runs beside the program (vgs_alias.h).
own_export("vgpuDeviceIsSimulated")
own_export("vgpuHostAlias")
