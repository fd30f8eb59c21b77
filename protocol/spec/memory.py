"""Device memory, pinned memory, copies. The client knows every allocation, so it classifies and checks pointers."""

from protocol.gen.dsl import (
    ADDRESS,
    DEVICE,
    DEVICEPTR,
    I32,
    INIT,
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
    own_export,
    ptr,
    struct_value,
    val,
)

STREAM_ARG = handle("hStream", STREAM)

fn(
    "cuMemGetInfo_v2",
    [out("free", SIZE, optional=True), out("total", SIZE, optional=True)],
    WAITING,
    doc="Free and total device memory in bytes.",
)
fn("cuMemGetInfo", [out("free", U32), out("total", U32)], doc="The 32-bit form: at most 4 GiB - 1.")
fn(
    "cuMemAlloc_v2",
    [out("dptr", DEVICEPTR), val("bytesize", SIZE)],
    WAITING,
    guest="custom",
    doc="Allocate device memory. Waits: the address is the worker's to give.",
)
fn(
    "cuMemAllocPitch_v2",
    [
        out("dptr", DEVICEPTR),
        out("pPitch", SIZE),
        val("WidthInBytes", SIZE),
        val("Height", SIZE),
        val("ElementSizeBytes", U32),
    ],
    WAITING,
    guest="custom",
    doc="Allocate rows padded for coalesced access.",
)
fn(
    "cuMemFree_v2",
    [val("dptr", DEVICEPTR)],
    WAITING,
    guest="custom",
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

# Copies. What the program calls is decided in the client; these are the ones that travel.
fn(
    "cuMemcpyHtoDAsync_v2",
    [val("dstDevice", DEVICEPTR), bytes_in("srcHost", "ByteCount", data=True), val("ByteCount", SIZE), STREAM_ARG],
    QUEUED,
    guest="custom",
    doc="Copy from pageable memory; the bytes travel with the record.",
)
fn(
    "cuMemcpyHtoD_v2",
    [val("dstDevice", DEVICEPTR), ptr("srcHost", "const void *"), val("ByteCount", SIZE)],
    doc="Copy to the device, in the legacy stream's order.",
)
fn(
    "cuMemcpyDtoH_v2",
    [ptr("dstHost", "void *"), val("srcDevice", DEVICEPTR), val("ByteCount", SIZE)],
    doc="Copy to the host, in the legacy stream's order.",
)
fn(
    "cuMemcpyDtoHAsync_v2",
    [bytes_out("dstHost", "ByteCount"), val("srcDevice", DEVICEPTR), val("ByteCount", SIZE), STREAM_ARG],
    WAITING,
    guest="custom",
    worker_after="result = s->backend->cuStreamSynchronize((CUstream)objects[0])",
    blocks=True,
    doc="Copy to pageable memory: waits for the stream, as the driver does.",
)
fn(
    "cuMemcpyDtoDAsync_v2",
    [val("dstDevice", DEVICEPTR), val("srcDevice", DEVICEPTR), val("ByteCount", SIZE), STREAM_ARG],
    QUEUED,
    guest="custom",
    doc="Copy within device memory.",
)
fn(
    "cuMemcpyDtoD_v2",
    [val("dstDevice", DEVICEPTR), val("srcDevice", DEVICEPTR), val("ByteCount", SIZE)],
    doc="Copy within device memory, in the legacy stream's order.",
)
fn(
    "vgpuMemcpyPinned",
    [val("dst", ADDRESS), val("src", ADDRESS), val("nbytes", SIZE), val("direction", U32), STREAM_ARG],
    QUEUED,
    doc="Copy between shared pinned memory and the device; direction 1 = to the device, 2 = to the host.",
)
fn(
    "vgpuMemcpy2DToDevice",
    [
        val("dst", DEVICEPTR),
        val("dstPitch", SIZE),
        val("width", SIZE),
        val("height", SIZE),
        val("nbytes", SIZE),
        STREAM_ARG,
        bytes_in("rows", "nbytes", data=True),
    ],
    QUEUED,
    doc="Rows, packed, to a pitched rectangle.",
)
fn(
    "vgpuMemcpy2DToHost",
    [
        bytes_out("rows", "nbytes"),
        val("src", DEVICEPTR),
        val("srcPitch", SIZE),
        val("width", SIZE),
        val("height", SIZE),
        val("nbytes", SIZE),
        STREAM_ARG,
    ],
    WAITING,
    blocks=True,
    doc="A pitched rectangle to packed rows; waits for the stream.",
)
fn(
    "vgpuMemcpy2DOnDevice",
    [
        val("dst", DEVICEPTR),
        val("dstPitch", SIZE),
        val("src", DEVICEPTR),
        val("srcPitch", SIZE),
        val("width", SIZE),
        val("height", SIZE),
        STREAM_ARG,
    ],
    QUEUED,
    doc="Copy a rectangle within device memory (or shared pinned memory).",
)
fn(
    "cuMemcpy",
    [val("dst", DEVICEPTR), val("src", DEVICEPTR), val("ByteCount", SIZE)],
    doc="Copy between addresses of any kind.",
)
fn(
    "cuMemcpyAsync",
    [val("dst", DEVICEPTR), val("src", DEVICEPTR), val("ByteCount", SIZE), ptr("hStream", "CUstream")],
    doc="Copy between addresses of any kind.",
)
fn(
    "cuMemcpyPeer",
    [
        val("dstDevice", DEVICEPTR),
        ptr("dstContext", "CUcontext"),
        val("srcDevice", DEVICEPTR),
        ptr("srcContext", "CUcontext"),
        val("ByteCount", SIZE),
    ],
    doc="Copy between devices: one address space, so a device copy.",
)
fn(
    "cuMemcpyPeerAsync",
    [
        val("dstDevice", DEVICEPTR),
        ptr("dstContext", "CUcontext"),
        val("srcDevice", DEVICEPTR),
        ptr("srcContext", "CUcontext"),
        val("ByteCount", SIZE),
        ptr("hStream", "CUstream"),
    ],
    doc="Copy between devices.",
)
for name, extra in (
    ("cuMemcpy2D_v2", []),
    ("cuMemcpy2DUnaligned_v2", []),
    ("cuMemcpy2DAsync_v2", [ptr("hStream", "CUstream")]),
):
    fn(name, [ptr("pCopy", "const CUDA_MEMCPY2D *"), *extra], doc="Copy a rectangle.")
fn("cuMemcpy3D_v2", [ptr("pCopy", "const CUDA_MEMCPY3D *")], doc="Copy a box.")
fn("cuMemcpy3DAsync_v2", [ptr("pCopy", "const CUDA_MEMCPY3D *"), ptr("hStream", "CUstream")], doc="Copy a box.")
fn("cuMemcpy3DPeer", [ptr("pCopy", "const CUDA_MEMCPY3D_PEER *")], doc="Copy a box, between devices too.")
fn(
    "cuMemcpy3DPeerAsync",
    [ptr("pCopy", "const CUDA_MEMCPY3D_PEER *"), ptr("hStream", "CUstream")],
    doc="Copy a box, between devices too.",
)

# Memsets.
for bits, scalar in ((8, U8), (16, U16), (32, U32)):
    value = val({8: "uc", 16: "us", 32: "ui"}[bits], scalar)
    fn(
        f"cuMemsetD{bits}Async",
        [val("dstDevice", DEVICEPTR), value, val("N", SIZE), STREAM_ARG],
        QUEUED,
        guest="custom",
        doc=f"Fill with a {bits}-bit value.",
    )
    fn(
        f"cuMemsetD{bits}_v2",
        [val("dstDevice", DEVICEPTR), value, val("N", SIZE)],
        doc=f"Fill with a {bits}-bit value.",
    )
    rectangle = [val("dstDevice", DEVICEPTR), val("dstPitch", SIZE), value, val("Width", SIZE), val("Height", SIZE)]
    fn(
        f"cuMemsetD2D{bits}Async",
        [*rectangle, STREAM_ARG],
        QUEUED,
        guest="custom",
        doc=f"Fill a rectangle with a {bits}-bit value.",
    )
    fn(f"cuMemsetD2D{bits}_v2", rectangle, doc=f"Fill a rectangle with a {bits}-bit value.")

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
    doc="Bytes into memory of vgpuHostReserve.",
)
fn(
    "vgpuHostRead",
    [val("address", ADDRESS), val("nbytes", SIZE), bytes_out("bytes", "nbytes")],
    WAITING,
    need=INIT,
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
    doc="Have a simulated device's memory lie in the attached memfd (vgw_device_memory.h).",
)

# The guest library's own, for what runs beside the program (vgs_alias.h).
own_export("vgpuDeviceIsSimulated")
own_export("vgpuHostAlias")
