"""`walk.py LIBCUDART MAJOR`: calls a runtime in many ways and prints its answers, one line of JSON for each step. The
output must be the same for NVIDIA's library and for vgpu's. Addresses are printed only as far as they are comparable.
"""

import ctypes
import json
import sys
from ctypes import byref, c_char, c_char_p, c_float, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from fatbinary import Registered

CANARY = 0xC7
HOST_TO_HOST, TO_DEVICE, TO_HOST, ON_DEVICE, DEFAULT = range(5)
N = 1000
PROPERTIES = {11: (728, 728), 12: (780, 1032), 13: (784, 1008)}  # by major: number of defined bytes, size of the struct


class Dim3(ctypes.Structure):
    _fields_ = [("x", c_uint), ("y", c_uint), ("z", c_uint)]


class Extent(ctypes.Structure):
    _fields_ = [("width", c_size_t), ("height", c_size_t), ("depth", c_size_t)]


class Pitched(ctypes.Structure):
    _fields_ = [("ptr", c_void_p), ("pitch", c_size_t), ("xsize", c_size_t), ("ysize", c_size_t)]


class Position(ctypes.Structure):
    _fields_ = [("x", c_size_t), ("y", c_size_t), ("z", c_size_t)]


class Box(ctypes.Structure):
    _fields_ = [
        ("src_array", c_void_p), ("src_pos", Position), ("src", Pitched),
        ("dst_array", c_void_p), ("dst_pos", Position), ("dst", Pitched), ("extent", Extent), ("kind", c_int),
    ]  # fmt: skip


library, major = sys.argv[1], int(sys.argv[2])
rt = ctypes.CDLL(library)
rt.cudaGetErrorName.restype = rt.cudaGetErrorString.restype = c_char_p


def say(step: str, *values: object) -> None:
    print(json.dumps([step, *values]), flush=True)


def buffer(nbytes: int) -> ctypes.Array[c_char]:
    return (c_char * nbytes).from_buffer(bytearray([CANARY]) * nbytes)


def written(data: ctypes.Array[c_char]) -> int:
    """Number of bytes from the start up to the last byte that differs from the canary."""
    return len(data.raw.rstrip(bytes([CANARY])))


def errors() -> None:
    codes = [*range(1100), 10000, -1, 12345]
    say("error names", [rt.cudaGetErrorName(code).decode() for code in codes])
    say("error texts exist", [bool(rt.cudaGetErrorString(code)) for code in codes])
    say("clean", rt.cudaPeekAtLastError(), rt.cudaGetLastError())


def devices() -> None:
    count, value = c_int(-5), c_int(-5)
    say("count", rt.cudaGetDeviceCount(byref(count)), count.value)
    say("count without result", rt.cudaGetDeviceCount(None), rt.cudaGetLastError())
    say("device", rt.cudaGetDevice(byref(value)), value.value)
    for name in ("cudaGetDeviceProperties", "cudaGetDeviceProperties_v2"):
        if hasattr(rt, name):
            # The reserved end of the struct may be written or not; nothing behind the struct may be written.
            data, (defined, nbytes) = buffer(4096), PROPERTIES[major if name[-3:] == "_v2" or major != 12 else 11]
            say(name, getattr(rt, name)(data, 0), defined <= written(data) <= nbytes, data.raw[:defined].hex())
            say(name, getattr(rt, name)(data, 99), rt.cudaGetLastError())
    attributes = []
    for attribute in range(150):
        value.value = -5
        attributes.append((rt.cudaDeviceGetAttribute(byref(value), attribute, 0), value.value))
    # Only attributes with a known meaning are compared: 0 and the reserved ids have none.
    known = [*range(1, 44), *range(45, 92), *range(95, 98), 100, 101, 106, 108, 109, 111]
    say("attributes", [attributes[i] for i in known])
    rt.cudaGetLastError()
    say("attribute of no device", rt.cudaDeviceGetAttribute(byref(value), 1, 7), rt.cudaGetLastError())
    text = ctypes.create_string_buffer(64)
    say("pci", rt.cudaDeviceGetPCIBusId(text, 64, 0), text.value.decode())
    say("by pci", rt.cudaDeviceGetByPCIBusId(byref(value), text), value.value)
    say("set device", rt.cudaSetDevice(0), rt.cudaSetDevice(-1), rt.cudaSetDevice(9), rt.cudaGetLastError())
    say("device again", rt.cudaGetDevice(byref(value)), value.value)
    flags = c_uint(77)
    say("flags", rt.cudaGetDeviceFlags(byref(flags)), flags.value)
    low, high = c_int(), c_int()
    say("priorities", rt.cudaDeviceGetStreamPriorityRange(byref(low), byref(high)), low.value, high.value)
    size = c_size_t()
    say("limits", [(rt.cudaDeviceGetLimit(byref(size), limit), size.value) for limit in range(3)])
    say("set limit", rt.cudaDeviceSetLimit(2, c_size_t(16 << 20)), rt.cudaDeviceGetLimit(byref(size), 2), size.value)
    say("wrong limit", rt.cudaDeviceGetLimit(byref(size), 99), rt.cudaGetLastError())
    say("cache", rt.cudaDeviceSetCacheConfig(1), rt.cudaDeviceGetCacheConfig(byref(value)), value.value)
    say("peer with itself", rt.cudaDeviceCanAccessPeer(byref(value), 0, 0), value.value, rt.cudaGetLastError())


def memory() -> None:
    p, q, pitch = c_void_p(0x77), c_void_p(0x77), c_size_t()
    say("malloc 0", rt.cudaMalloc(byref(p), c_size_t(0)), p.value)
    say("malloc too much", rt.cudaMalloc(byref(q), c_size_t(1 << 50)), q.value, rt.cudaGetLastError())
    say("malloc nowhere", rt.cudaMalloc(None, c_size_t(8)), rt.cudaGetLastError())
    say("free null", rt.cudaFree(None), rt.cudaFreeHost(None))
    say("free wrong", rt.cudaFree(c_void_p(0x1234)), rt.cudaPeekAtLastError(), rt.cudaGetLastError())
    say("malloc", rt.cudaMalloc(byref(p), c_size_t(4096)), p.value % 256)
    host = ctypes.create_string_buffer(bytes(range(256)) * 16, 4096)
    back = ctypes.create_string_buffer(4096)
    size = c_size_t(4096)
    say("copy", rt.cudaMemcpy(p, host, size, TO_DEVICE), rt.cudaMemcpy(back, p, size, TO_HOST), back.raw == host.raw)
    say("copy by default", rt.cudaMemcpy(back, p, size, DEFAULT), back.raw == host.raw)
    say("copy on host", rt.cudaMemcpy(back, host, c_size_t(10), HOST_TO_HOST), back.raw[:10].hex())
    say("copy kinds", [rt.cudaMemcpy(back, host, size, kind) for kind in (-1, 5, 77)], rt.cudaGetLastError())
    say("copy nothing", rt.cudaMemcpy(back, c_void_p(8), c_size_t(0), TO_HOST), rt.cudaMemcpy(None, None, 0, 1))
    say("copy null", rt.cudaMemcpy(None, host, size, TO_DEVICE), rt.cudaGetLastError())
    say("copy from nowhere", rt.cudaMemcpy(back, c_void_p(16), size, TO_HOST), rt.cudaGetLastError())
    say("set", rt.cudaMemset(p, 0x1FF, c_size_t(100)), rt.cudaMemcpy(back, p, size, TO_HOST), back.raw[:102].hex())
    say("set nothing", rt.cudaMemset(None, 1, c_size_t(0)))
    free, total = c_size_t(), c_size_t()
    say("info", rt.cudaMemGetInfo(byref(free), byref(total)), 0 < free.value <= total.value, total.value)

    say("pitch", rt.cudaMallocPitch(byref(q), byref(pitch), c_size_t(100), c_size_t(7)), pitch.value)
    say("plane", rt.cudaMemcpy2D(q, pitch, host, c_size_t(128), c_size_t(100), c_size_t(7), TO_DEVICE))
    say("plane back", rt.cudaMemcpy2D(back, c_size_t(100), q, pitch, c_size_t(100), c_size_t(7), TO_HOST))
    say("plane data", back.raw[:700] == b"".join(host.raw[i * 128 : i * 128 + 100] for i in range(7)))
    say(
        "narrow",
        rt.cudaMemcpy2D(back, c_size_t(9), q, pitch, c_size_t(100), c_size_t(7), TO_HOST),
        rt.cudaGetLastError(),
    )
    say("plane of nothing", rt.cudaMemcpy2D(back, c_size_t(9), q, pitch, c_size_t(0), c_size_t(7), TO_HOST))
    say("plane kind", rt.cudaMemcpy2D(back, c_size_t(9), q, pitch, c_size_t(3), c_size_t(7), 9), rt.cudaGetLastError())
    say("set plane", rt.cudaMemset2D(q, pitch, 5, c_size_t(50), c_size_t(3)))
    say("plane again", rt.cudaMemcpy2D(back, c_size_t(100), q, pitch, c_size_t(100), c_size_t(7), DEFAULT))
    say("its data", back.raw[:700].hex())
    say("free pitched", rt.cudaFree(q))

    box = Pitched()
    say("malloc box", rt.cudaMalloc3D(byref(box), Extent(60, 5, 4)), box.pitch, box.xsize, box.ysize)
    say("set box", rt.cudaMemset3D(box, 9, Extent(60, 5, 4)), rt.cudaMemset3D(box, 3, Extent(10, 2, 3)))
    copy = Box(src=box, dst=Pitched(ctypes.addressof(back), 60, 60, 5), extent=Extent(60, 5, 4), kind=TO_HOST)
    say("copy box", rt.cudaMemcpy3D(byref(copy)), back.raw[:1200].hex())
    copy.src_pos, copy.extent = Position(1, 1, 1), Extent(9, 2, 2)
    say("part of a box", rt.cudaMemcpy3D(byref(copy)), back.raw[:1200].hex())
    copy.kind = 17
    say("box kind", rt.cudaMemcpy3D(byref(copy)), rt.cudaGetLastError())
    say("free box", rt.cudaFree(c_void_p(box.ptr)))

    pinned, mapped = c_void_p(), c_void_p()
    say("pinned", rt.cudaMallocHost(byref(pinned), c_size_t(4096)), rt.cudaHostAlloc(byref(mapped), c_size_t(4096), 2))
    flags, device = c_uint(), c_void_p()
    say("pinned flags", rt.cudaHostGetFlags(byref(flags), mapped), flags.value)
    say("its address", rt.cudaHostGetDevicePointer(byref(device), mapped, 0), device.value == mapped.value)
    aligned = ctypes.create_string_buffer(3 * 4096)
    page = c_void_p((ctypes.addressof(aligned) + 4095) & ~4095)
    say("register", rt.cudaHostRegister(page, c_size_t(4096), 0))
    for name, pointer in (("device", p), ("inside", c_void_p(p.value + 100)), ("pinned", pinned), ("mapped", mapped),
                          ("registered", page), ("plain", host), ("null", None)):  # fmt: skip
        data = buffer(256)
        result = rt.cudaPointerGetAttributes(data, pointer)
        words = [int.from_bytes(data.raw[i : i + 8], "little") for i in (8, 16)]
        address = pointer.value if isinstance(pointer, c_void_p) else ctypes.addressof(pointer) if pointer else 0
        same = ["null" if not w else "same" if w == address else "other" for w in words]
        say(f"attributes of {name}", result, int.from_bytes(data.raw[:4], "little"),
            int.from_bytes(data.raw[4:8], "little", signed=True), same, written(data))  # fmt: skip
    say("unregister", rt.cudaHostUnregister(page), rt.cudaHostUnregister(page), rt.cudaGetLastError())
    say(
        "free all",
        rt.cudaFreeHost(pinned),
        rt.cudaFreeHost(mapped),
        rt.cudaFree(p),
        rt.cudaFree(p),
        rt.cudaGetLastError(),
    )


def streams() -> None:
    s, e, f, value = c_void_p(), c_void_p(), c_void_p(), c_int()
    flags, ms, p = c_uint(), c_float(-1), c_void_p()
    say("stream", rt.cudaStreamCreateWithPriority(byref(s), 1, -1))
    say("its flags", rt.cudaStreamGetFlags(s, byref(flags)), flags.value)
    say("its priority", rt.cudaStreamGetPriority(s, byref(value)), value.value)
    say("wrong flags", rt.cudaStreamCreateWithFlags(byref(p), 77), rt.cudaGetLastError())
    say("events", rt.cudaEventCreate(byref(e)), rt.cudaEventCreateWithFlags(byref(f), 2))
    say("fresh event", rt.cudaEventQuery(e), rt.cudaEventSynchronize(e), rt.cudaGetLastError())
    say("time of nothing", rt.cudaEventElapsedTime(byref(ms), e, e), rt.cudaGetLastError())
    say("record", rt.cudaEventRecord(e, s), rt.cudaEventSynchronize(e), rt.cudaEventQuery(e))
    say("time", rt.cudaEventElapsedTime(byref(ms), e, e), ms.value >= 0)
    say("record untimed", rt.cudaEventRecord(f, s), rt.cudaEventSynchronize(f))
    say("its time", rt.cudaEventElapsedTime(byref(ms), e, f), rt.cudaGetLastError())
    say("wait", rt.cudaStreamWaitEvent(s, e, 0), rt.cudaStreamSynchronize(s), rt.cudaStreamQuery(s))
    say("async", rt.cudaMallocAsync(byref(p), c_size_t(1 << 16), s), rt.cudaMemsetAsync(p, 3, c_size_t(1 << 16), s))
    back = ctypes.create_string_buffer(1 << 16)
    say("async back", rt.cudaMemcpyAsync(back, p, c_size_t(1 << 16), TO_HOST, s), rt.cudaStreamSynchronize(s))
    say("async data", back.raw == b"\3" * (1 << 16))
    say("async free", rt.cudaFreeAsync(p, s), rt.cudaStreamSynchronize(s))
    say("async nothing", rt.cudaMallocAsync(byref(p), c_size_t(0), s), rt.cudaGetLastError())
    calls = []
    host_function = ctypes.CFUNCTYPE(None, c_void_p)(lambda data: calls.append(("function", data)))
    callback = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_void_p)(
        lambda stream, status, data: calls.append(("callback", stream == s.value, status, data))
    )
    say(
        "callbacks",
        rt.cudaLaunchHostFunc(s, host_function, c_void_p(5)),
        rt.cudaStreamAddCallback(s, callback, c_void_p(6), 0),
    )
    say("called", rt.cudaStreamSynchronize(s), calls)
    say("capturing", rt.cudaStreamIsCapturing(s, byref(value)), value.value)
    say("destroy", rt.cudaStreamDestroy(s), rt.cudaEventDestroy(e), rt.cudaEventDestroy(f), rt.cudaGetLastError())
    pool = c_void_p()
    threshold = c_ulonglong(1 << 20)
    say("pool", rt.cudaDeviceGetDefaultMemPool(byref(pool), 0), bool(pool.value))
    say(
        "pool attribute",
        rt.cudaMemPoolSetAttribute(pool, 4, byref(threshold)),
        rt.cudaMemPoolGetAttribute(pool, 4, byref(threshold)),
        threshold.value,
    )
    say("trim", rt.cudaMemPoolTrimTo(pool, c_size_t(0)))


def kernels() -> None:
    program = Registered(rt)
    p, p2, counter = c_void_p(), c_void_p(), c_int(1)
    values = (c_float * N)(*range(N))
    nbytes = c_size_t(ctypes.sizeof(values))
    rt.cudaMalloc(byref(p), nbytes)
    rt.cudaMemcpy(p, values, nbytes, TO_DEVICE)
    n, factor = c_int(N), c_float(3)
    arguments = (c_void_p * 3)(*(ctypes.addressof(a) for a in (p, n, factor)))
    grid, block, zero = Dim3(8, 1, 1), Dim3(128, 1, 1), c_size_t(0)
    say("launch", rt.cudaLaunchKernel(program.scale, grid, block, arguments, zero, None), rt.cudaDeviceSynchronize())
    rt.cudaMemcpy(values, p, nbytes, TO_HOST)
    say("its data", list(values) == [3.0 * i for i in range(N)])
    g, b, shared, stream = Dim3(), Dim3(), c_size_t(), c_void_p(9)
    say("push", rt.__cudaPushCallConfiguration(grid, block, c_size_t(12), c_void_p(3)))
    say(
        "pop",
        rt.__cudaPopCallConfiguration(byref(g), byref(b), byref(shared), byref(stream)),
        g.x,
        b.x,
        b.z,
        shared.value,
        stream.value,
    )
    say(
        "pop of nothing",
        rt.__cudaPopCallConfiguration(byref(g), byref(b), byref(shared), byref(stream)),
        rt.cudaGetLastError(),
    )
    for name, gr, bl, shared_nbytes in (("grid", Dim3(0, 1, 1), block, 0), ("block", grid, Dim3(2048, 1, 1), 0),
                                        ("shared", grid, block, 1 << 20)):  # fmt: skip
        say(
            f"wrong {name}",
            rt.cudaLaunchKernel(program.scale, gr, bl, arguments, c_size_t(shared_nbytes), None),
            rt.cudaGetLastError(),
        )
    unknown = ctypes.create_string_buffer(16)
    say("unknown function", rt.cudaLaunchKernel(unknown, grid, block, arguments, zero, None), rt.cudaGetLastError())
    say("no function", rt.cudaLaunchKernel(None, grid, block, arguments, zero, None), rt.cudaGetLastError())
    data = buffer(512)
    say("attributes", rt.cudaFuncGetAttributes(data, program.scale), written(data) // 4 * 4)
    fields = [int.from_bytes(data.raw[i : i + 4], "little") for i in (0, 24, 44, 48)]
    say("fields", fields)
    say("attributes of unknown", rt.cudaFuncGetAttributes(data, unknown), rt.cudaGetLastError())
    say(
        "set attribute", rt.cudaFuncSetAttribute(program.scale, 8, 90000), rt.cudaFuncGetAttributes(data, program.scale)
    )
    say(
        "dynamic",
        int.from_bytes(data.raw[44:48], "little"),
        rt.cudaFuncSetAttribute(program.scale, 8, 1 << 20),
        rt.cudaGetLastError(),
    )
    say(
        "cache",
        rt.cudaFuncSetCacheConfig(program.scale, 2),
        rt.cudaFuncSetCacheConfig(unknown, 2),
        rt.cudaGetLastError(),
    )
    say(
        "of unknown",
        rt.cudaFuncSetAttribute(unknown, 8, 4096),
        rt.cudaFuncSetSharedMemConfig(unknown, 1),
        rt.cudaGetFuncBySymbol(byref(p2), unknown),
        rt.cudaGetLastError(),
    )
    blocks, size = c_int(), c_size_t()
    say(
        "occupancy",
        rt.cudaOccupancyMaxActiveBlocksPerMultiprocessor(byref(blocks), program.scale, 128, zero),
        blocks.value,
    )
    say("free shared", rt.cudaOccupancyAvailableDynamicSMemPerBlock(byref(size), program.scale, 2, 128), size.value)
    say(
        "occupancy of unknown",
        rt.cudaOccupancyMaxActiveBlocksPerMultiprocessor(byref(blocks), unknown, 128, zero),
        rt.cudaGetLastError(),
    )

    address = c_void_p()
    say(
        "symbol",
        rt.cudaGetSymbolSize(byref(size), program.counter),
        size.value,
        rt.cudaGetSymbolAddress(byref(address), program.counter),
        bool(address.value),
    )
    say(
        "from symbol",
        rt.cudaMemcpyFromSymbol(byref(counter), program.counter, c_size_t(4), zero, TO_HOST),
        counter.value,
    )
    by = c_int(2)
    one = (c_void_p * 1)(ctypes.addressof(by))
    say("bump", rt.cudaLaunchKernel(program.bump, Dim3(1, 1, 1), Dim3(1, 1, 1), one, zero, None))
    say("bumped", rt.cudaMemcpyFromSymbol(byref(counter), program.counter, c_size_t(4), zero, DEFAULT), counter.value)
    counter.value = 70
    say("to symbol", rt.cudaMemcpyToSymbol(program.counter, byref(counter), c_size_t(4), zero, TO_DEVICE))
    say("bump again", rt.cudaLaunchKernel(program.bump, Dim3(1, 1, 1), Dim3(1, 1, 1), one, zero, None))
    say(
        "bumped again",
        rt.cudaMemcpyFromSymbol(byref(counter), program.counter, c_size_t(4), zero, TO_HOST),
        counter.value,
    )
    say(
        "beyond symbol",
        rt.cudaMemcpyToSymbol(program.counter, byref(counter), c_size_t(4), c_size_t(1), TO_DEVICE),
        rt.cudaGetLastError(),
    )
    say(
        "symbol direction",
        rt.cudaMemcpyToSymbol(program.counter, byref(counter), c_size_t(4), zero, TO_HOST),
        rt.cudaGetLastError(),
    )
    say("unknown symbol", rt.cudaGetSymbolSize(byref(size), unknown), rt.cudaGetLastError())
    name = c_char_p()
    if major >= 12:
        say("name", rt.cudaFuncGetName(byref(name), program.scale), (name.value or b"").decode())
        kernel = c_void_p()
        say("kernel", rt.cudaGetKernel(byref(kernel), program.bump), bool(kernel.value))
        say(
            "launch kernel",
            rt.cudaLaunchKernel(kernel, Dim3(1, 1, 1), Dim3(1, 1, 1), one, zero, None),
            rt.cudaDeviceSynchronize(),
        )
        say(
            "by kernel",
            rt.cudaMemcpyFromSymbol(byref(counter), program.counter, c_size_t(4), zero, TO_HOST),
            counter.value,
        )
    say("reset", rt.cudaDeviceReset())
    say(
        "counter after reset",
        rt.cudaMemcpyFromSymbol(byref(counter), program.counter, c_size_t(4), zero, TO_HOST),
        counter.value,
    )
    say("free after reset", rt.cudaFree(p), rt.cudaGetLastError())
    program.unregister()
    say(
        "unregistered",
        rt.cudaLaunchKernel(program.bump, Dim3(1, 1, 1), Dim3(1, 1, 1), one, zero, None),
        rt.cudaGetLastError(),
    )


def entry_points() -> None:
    function, status = c_void_p(), c_int(-5)
    extra = () if major == 11 else (byref(status),)
    say(
        "entry",
        rt.cudaGetDriverEntryPoint(b"cuMemAlloc", byref(function), c_ulonglong(0), *extra),
        bool(function.value),
        status.value,
    )
    say(
        "no entry",
        rt.cudaGetDriverEntryPoint(b"cuNothing", byref(function), c_ulonglong(0), *extra),
        status.value,
        rt.cudaGetLastError(),
    )
    if major >= 12:
        say(
            "no status",
            rt.cudaGetDriverEntryPoint(b"cuNothing", byref(function), c_ulonglong(0), None),
            rt.cudaGetLastError(),
        )
        say(
            "by version",
            rt.cudaGetDriverEntryPointByVersion(
                b"cuCtxSynchronize", byref(function), 12000, c_ulonglong(0), byref(status)
            ),
            status.value,
        )


version = c_int()
say(
    "versions",
    rt.cudaDriverGetVersion(byref(version)),
    version.value,
    rt.cudaRuntimeGetVersion(byref(version)),
    version.value,
)
for part in (errors, devices, memory, streams, kernels, entry_points):
    part()
say("end")
