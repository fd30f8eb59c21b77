"""Copies and fills. Each states its direction; the client chooses the record that carries it by the addresses."""

from protocol.gen.dsl import (
    ADDRESS,
    ARRAY,
    DEVICEPTR,
    INVALID_VALUE,
    QUEUED,
    SIZE,
    STREAM,
    U8,
    U16,
    U32,
    WAITING,
    bytes_in,
    bytes_out,
    fn,
    handle,
    ptr,
    struct,
    val,
)

STREAM_ARG = handle("hStream", STREAM)
HOST, DEVICE_SIDE = "VGS_PLACE_HOST", "VGS_PLACE_DEVICE"  # the kind of an address that the client does not know


# The sides of a copy as they travel: a position in an array, or rows in memory that the worker can access.
SIDES = [
    *(val(f"{side}{name}", SIZE) for side in ("dst", "src") for name in ("Address", "Pitch", "Rows", "X", "Y", "Z")),
    *(val(name, SIZE) for name in ("width", "height", "depth")),
    handle("dstArray", ARRAY, optional=True),
    handle("srcArray", ARRAY, optional=True),
]


def either(side: str) -> dict[str, str]:
    """A position in an array, or rows in memory if the side is not an array."""
    array = f"{side}Array"
    return {
        f"{side}MemoryType": f"{array} ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_UNIFIED",
        array: array,
        f"{side}Device": f"{array} ? 0 : req->{side}Address",
        f"{side}Pitch": f"{array} ? 0 : req->{side}Pitch",
        f"{side}Height": f"{array} ? 0 : req->{side}Rows",
        f"{side}XInBytes": f"{array} ? req->{side}X : 0",
        f"{side}Y": f"{array} ? req->{side}Y : 0",
        f"{side}Z": f"{array} ? req->{side}Z : 0",
    }


def is_out_of_reach(side: str) -> str:
    at = f"req->{side}Address, req->{side}Pitch, req->{side}Rows"
    return f"!{side}Array && !vgx_box_is_reachable(s, {at}, req->width, req->height, req->depth)"


def box(**sides: str) -> str:
    shape = {"WidthInBytes": "req->width", "Height": "req->height", "Depth": "req->depth"}
    return struct("CUDA_MEMCPY3D", **(sides | shape))


EITHER = box(**(either("dst") | either("src")))
OUT_OF_REACH = {is_out_of_reach(side): INVALID_VALUE for side in ("dst", "src")}


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
    pieces="srcDevice",
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
        "sync && (vgs_copy_is_host(dstDevice) || vgs_copy_is_host(srcDevice) || "
        "vgs_range_completes(dstDevice, srcDevice))",
    ),
    forms=["cuMemcpyDtoD_v2"],
    submits=True,
    doc="Copy within device memory.",
)
fn(
    "cuMemcpyAsync",
    [val("dst", DEVICEPTR), val("src", DEVICEPTR), val("ByteCount", SIZE), STREAM_ARG],
    asked=copied("dst", HOST, "src", HOST),  # addresses that the client does not know are the program's own memory
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

# Fills. A synchronous fill of pinned memory is complete on return: the program reads the memory without another call.
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
            submits=True,
            doc=f"Fill {'a rectangle ' if dimensions else ''}with a {bits}-bit value.",
        )
