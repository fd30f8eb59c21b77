"""The first records of a session of the search in one process (in_process.py): they make objects of each kind."""

from __future__ import annotations

import struct

from vgpud._gen.api import HAS_FD, HEADER, WANT_REPLY

from tests.fuzz.stream import BY_NAME, FORMATS

IMAGE = b"vgt"  # image of vgt_kernels.c; its kernels write to any address given as parameter, but KERNEL has none
KERNEL = b"count_up"
OTHER_KERNEL = b"ignore"  # has two parameters, and uses none
PARAMETERS = bytes(16)
# Kinds of handles. The opening makes POOL objects of each kind in POOLED, with ids from 1; objects of the kinds in
# OTHERS are used only on the channel that made them.
POOL = 6
AWAITED = (
    8  # the first records of the opening: the context, memory whose addresses are needed, pinned memory, the image
)
PAGE = 4096
POOLED = ("STREAM", "EVENT", "MODULE", "LIBRARY", "FUNCTION", "KERNEL", "MEMPOOL", "GRAPH")
POOLED += ("GRAPH_EXEC", "GRAPH_NODE", "ARRAY", "MIPMAP", "IPC_EVENT", "ALLOCATION", "CONTEXT")
OTHERS = ("TEXREF", "SURFREF", "GREEN", "RESOURCE_DESC", "IMAGE")
KINDS = {name: number for number, name in enumerate((*POOLED, *OTHERS), 1)}
WITH_DESCRIPTOR = {"vgpuHostMap", "vgpuHostMapFile", "vgpuDeviceFile"}
KIND_FUNCTION, KIND_KERNEL = 6, 7  # VGW_KIND_*
FLOAT, SURFACE_LDST = 0x20, 2  # CU_AD_FORMAT_FLOAT, CUDA_ARRAY3D_SURFACE_LDST
CONDITIONS = 2  # conditional handles that the opening makes and reads, for the first graphs
MORE_CONDITIONS = 13  # of the last graph, so that a few more fill the session's table

KERNEL_NODE = dict.fromkeys(("gridDimX", "gridDimY", "gridDimZ", "blockDimX", "blockDimY", "blockDimZ"), 1)
POOL_PROPS = struct.pack("<iiiiQQ56x", 1, 1, 1, 0, 0, 0)  # pinned memory of device 0; can be exported
ACCESS = struct.pack("<iii", 1, 0, 3)  # device 0 reads and writes
WRITE = struct.pack("<IIQQIIQ8x", 2, 0, 0, 0, 0, 0, 0)  # of a word; never executed, as its address is 0
HALF_COPY = 0xE0000001  # the number of a client's function that copies pageable memory in a graph (vgw_wire.h)
# Graph number to the name, fields and last part of the record that adds its node; without one: an empty node.
NODES: dict[int, tuple[str, dict[str, int | bytes], bytes]] = {
    1: ("cuGraphAddHostNode", {"callback": HALF_COPY}, b""),
    2: ("cuGraphAddMemAllocNode", {"bytesize": 4096, "accessDescCount": 1, "poolProps": POOL_PROPS}, ACCESS),
    3: ("cuGraphAddBatchMemOpNode", {"ctx": 1, "count": 1}, WRITE),
    4: ("cuGraphAddChildGraphNode", {"childGraph": 1}, b""),
    5: ("cuGraphAddKernelNode_v2", {**KERNEL_NODE, "kind": KIND_KERNEL, "object": 1}, b""),
    6: (
        "cuGraphAddKernelNode_v2",
        {**KERNEL_NODE, "kind": KIND_FUNCTION, "object": POOL, "params_nbytes": len(PARAMETERS)},
        PARAMETERS,
    ),
}


def encode_structs(name: str, sequence: int, fields: dict[str, int | bytes], tail: bytes = b"") -> bytes:
    """As tests.fuzz.stream.encode, of records with structs, which are given as bytes."""
    record = BY_NAME[name]
    values = [fields.get(field, 0) for _, field in record.request]
    body = b"".join(
        value if isinstance(value, bytes) else struct.pack("<" + FORMATS[kind], value)
        for value, (kind, _) in zip(values, record.request, strict=True)
    )
    body += bytes(-len(body) % 8) + tail + bytes(-len(tail) % 8)
    return HEADER.pack(HEADER.size + len(body), record.opcode, 0, sequence, int(sequence > 1)) + body


def make_array(number: int, sequence: int) -> bytes:
    """A record that creates an array of eight by eight floats for textures and surfaces."""
    record = BY_NAME["cuArray3DCreate_v2"]
    body = struct.pack("<QQQIIIIII", 8, 8, 0, FLOAT, 1, SURFACE_LDST, 0, number, 0)
    return HEADER.pack(HEADER.size + len(body), record.opcode, 0, sequence, 1) + body


def make_mipmap(number: int, sequence: int) -> bytes:
    """A record that creates a mipmapped array of two levels."""
    record = BY_NAME["cuMipmappedArrayCreate"]
    body = struct.pack("<QQQIIIIII", 8, 8, 0, FLOAT, 1, SURFACE_LDST, 0, number, 2)
    return HEADER.pack(HEADER.size + len(body), record.opcode, 0, sequence, 1) + body


def make_allocation(number: int, sequence: int) -> bytes:
    """A record that creates physical memory which can be exported."""
    record = BY_NAME["cuMemCreate"]
    prop = struct.pack("<iiiiQQ", 1, 1, 1, 0, 0, 0)  # pinned, by descriptor, on device 0
    values = {"size": struct.pack("<Q", 2 << 20), "flags": bytes(8), "prop": prop, "handle": struct.pack("<I", number)}
    body = b"".join(values[field] for _, field in record.request)
    body += bytes(-len(body) % 8)
    return HEADER.pack(HEADER.size + len(body), record.opcode, 0, sequence, 1) + body


def add_node(number: int) -> tuple[str, dict[str, int | bytes], bytes]:
    name, fields, tail = NODES[number]
    return name, {"phGraphNode": number, "hGraph": number, **fields}, tail


MAKERS = (make_array, make_mipmap, make_allocation)


def opening() -> bytes:
    """The first records of a session: they create a context, memory, and POOL objects of each kind in POOLED."""
    image: dict[str, int | bytes] = {"image": 1, "total": len(IMAGE), "offset": 0, "nbytes": len(IMAGE)}
    calls: list[tuple[str, dict[str, int | bytes], bytes]] = [
        ("cuDevicePrimaryCtxRetain", {"pctx": 1, "dev": 0}, b""),
        *(("cuMemAlloc_v2", {"bytesize": nbytes}, b"") for nbytes in (64, 1 << 16, 1 << 21)),
        ("cuMemPoolCreate", {"poolProps": POOL_PROPS, "pool": POOL}, b""),
        ("cuMemAllocFromPoolAsync", {"bytesize": 4096, "pool": POOL}, b""),
        ("vgpuHostMap", {"address": 0, "nbytes": 4 * PAGE}, b""),
        ("vgpuHostReserve", {"address": 0, "nbytes": 2 * PAGE}, b""),
        ("vgpuImageWrite", image, IMAGE),
        ("cuModuleLoadData", {"module": 1, "image": 1}, b""),
        ("cuModuleGetFunction", {"hfunc": 1, "hmod": 1, "name_nbytes": len(KERNEL)}, KERNEL),
        ("cuLibraryLoadData", {"library": 1, "image": 1}, b""),
        ("cuLibraryGetKernel", {"pKernel": 1, "library": 1, "name_nbytes": len(KERNEL)}, KERNEL),
        ("cuStreamCreateWithPriority", {"phStream": 1, "flags": 1}, b""),
        ("cuEventCreate", {"phEvent": 1}, b""),
        ("vgpuIpcEventCreate", {"event": 1}, b""),
        ("cuDeviceGetDefaultMemPool", {"pool_out": 1}, b""),
        ("cuGraphCreate", {"phGraph": 1}, b""),
        add_node(1),
        ("cuGraphInstantiateWithFlags", {"phGraphExec": 1, "hGraph": 1}, b""),
    ]
    data = b""
    for number in range(2, POOL + 1):
        kernel = OTHER_KERNEL if number == POOL else KERNEL
        if number < POOL:
            calls.append(("cuDeviceGetDefaultMemPool", {"pool_out": number}, b""))
        calls += [
            ("cuModuleLoadData", {"module": number, "image": 1}, b""),
            ("cuModuleGetFunction", {"hfunc": number, "hmod": number, "name_nbytes": len(kernel)}, kernel),
            ("cuLibraryLoadData", {"library": number, "image": 1}, b""),
            ("cuLibraryGetKernel", {"pKernel": number, "library": number, "name_nbytes": len(KERNEL)}, KERNEL),
            ("cuStreamCreateWithPriority", {"phStream": number, "flags": number % 2}, b""),
            ("cuEventCreate", {"phEvent": number}, b""),
            ("vgpuIpcEventCreate", {"event": number}, b""),
            ("cuGraphCreate", {"phGraph": number}, b""),
            add_node(number),
            ("cuGraphInstantiateWithFlags", {"phGraphExec": number, "hGraph": number}, b""),
        ]
    calls += [
        ("cuGraphConditionalHandleCreate", {"hGraph": graph, "ctx": 1}, b"")
        for graph in [POOL] * MORE_CONDITIONS + [*range(1, CONDITIONS + 1)]
    ]
    # Only the first ones and the last are waited for: a switch of threads for each would take most of a session's time.
    for sequence, (name, fields, tail) in enumerate(calls, 1):
        if sequence == len(calls):
            data += b"".join(make(n, n) for n in range(1, POOL + 1) for make in MAKERS)
        record = bytearray(encode_structs(name, sequence, fields, tail))
        waits = BY_NAME[name].waits and (sequence <= AWAITED or sequence > len(calls) - CONDITIONS)
        record[6:8] = struct.pack("<H", (WANT_REPLY if waits else 0) | (HAS_FD if name in WITH_DESCRIPTOR else 0))
        data += bytes(record)
    assert BY_NAME[calls[-1][0]].waits
    return data
