"""Memory as another interface's, several devices by one launch, and what this driver and NVIDIA's refuse alike."""

from __future__ import annotations

import sys

from tests.shim.client import PRELUDE
from tests.shim.simulated import KERNELS, Run, Simulate
from tests.shim.test_virtual_memory import TOOLS

EXTERNAL = (
    TOOLS
    + """
INVALID_VALUE, INVALID_HANDLE, NOT_SUPPORTED, UNKNOWN = 1, 400, 801, 999
class Import(ctypes.Structure):
    _fields_ = [("type", c_int), ("fd", c_int), ("pad", c_uint64 * 2), ("size", c_uint64), ("flags", c_uint),
                ("reserved", c_uint * 16)]
class Buffer(ctypes.Structure):
    _fields_ = [("offset", c_uint64), ("size", c_uint64), ("flags", c_uint), ("reserved", c_uint * 16)]
    def __init__(self, offset, size, flags=0): super().__init__(offset=offset, size=size, flags=flags)
def described(fd, size=GRANULE, type=1, flags=0):
    d = Import(type=type, size=size, flags=flags)
    ctypes.memmove(ctypes.addressof(d) + 8, bytes(c_int(fd)), 4)  # a union of pointers follows the type
    return d
assert (ctypes.sizeof(Import), ctypes.sizeof(Buffer)) == (104, 88)
def exported(handle):
    fd = c_int(-1)
    ok(cuda.cuMemExportToShareableHandle(byref(fd), handle, 1, c_uint64(0)))
    return fd.value
def mapped(memory, offset=0, size=GRANULE):
    p = c_uint64()
    ok(cuda.cuExternalMemoryGetMappedBuffer(byref(p), memory, byref(Buffer(offset, size))))
    return p
"""
)


def test_the_block_of_an_address(simulate: Simulate) -> None:
    simulate(
        EXTERNAL
        + """
BLOCK_ID, IS_HW_DECOMPRESS_CAPABLE = 20, 21
def attribute(name, address):
    value = c_uint64(0)
    ok(cuda.cuPointerGetAttribute(byref(value), name, c_uint64(address)))
    return value.value
first, second = (new(cuda.cuMemAlloc_v2, c_size_t(4096)).value for _ in range(2))
assert attribute(BLOCK_ID, first) == attribute(BLOCK_ID, first + 8) != attribute(BLOCK_ID, second)
assert attribute(IS_HW_DECOMPRESS_CAPABLE, first) == 0
assert cuda.cuPointerGetAttribute(byref(c_uint64()), BLOCK_ID, c_uint64(0x1000)) == 1
one, other = create(), create()
places = [reserve(1) for _ in range(3)]
for place, handle in zip(places, (one, other, one)):  # one block at two addresses
    map(place, handle)
ids = [attribute(BLOCK_ID, place) for place in places]
assert ids[0] == ids[2] != ids[1]
"""
    )


def test_exported_memory_is_imported(simulate: Simulate) -> None:
    simulate(
        EXTERNAL
        + """
prop[4] = 1  # a descriptor may be asked for
handle, own = create(), reserve(1)
ok(map(own, handle))
ok(allow(own))
ok(put(own, bytes(range(256))))
ok(cuda.cuCtxSynchronize())
fd = exported(handle)
memory = new(cuda.cuImportExternalMemory, byref(described(fd)))
try:
    os.fstat(fd)
    raise AssertionError("the import does not own the descriptor")
except OSError:
    pass
whole, part = mapped(memory), mapped(memory, 64, 16)
assert look(whole.value, 256) == bytes(range(256)) and look(part.value, 16) == bytes(range(64, 80))
ok(put(part.value, b"written"))
ok(cuda.cuCtxSynchronize())
assert look(own + 64, 7) == b"written"
for wrong in (Buffer(0, 0), Buffer(0, GRANULE + 1), Buffer(GRANULE, 1), Buffer(2**64 - 1, 2), Buffer(0, 16, 1)):
    assert cuda.cuExternalMemoryGetMappedBuffer(byref(c_uint64()), memory, byref(wrong)) == INVALID_VALUE
assert cuda.cuExternalMemoryGetMappedBuffer(None, memory, byref(Buffer(0, 16))) == INVALID_VALUE
ok(cuda.cuDestroyExternalMemory(memory))
assert cuda.cuDestroyExternalMemory(memory) == INVALID_VALUE
assert cuda.cuExternalMemoryGetMappedBuffer(byref(c_uint64()), memory, byref(Buffer(0, 16))) == INVALID_VALUE
assert look(whole.value, 4) == bytes(range(4)), "a mapping outlives the import"
ok(cuda.cuMemFree_v2(whole))
assert sees(whole.value) and cuda.cuMemFree_v2(whole) == INVALID_VALUE
ok(cuda.cuMemFree_v2(part))
assert look(own + 64, 7) == b"written"
before = free_nbytes()
ok(cuda.cuMemRelease(handle))
ok(unmap(own))
assert free_nbytes() == before + GRANULE, "nothing else holds the memory"
"""
    )


def test_other_interfaces_are_refused(simulate: Simulate) -> None:
    simulate(
        EXTERNAL
        + """
made, plain = c_void_p(7), os.memfd_create("not memory of a device")
assert cuda.cuImportExternalMemory(byref(made), byref(described(plain))) == UNKNOWN
os.fstat(plain)  # not taken
assert cuda.cuImportExternalMemory(byref(made), byref(described(-1))) == UNKNOWN
for type in (0, *range(2, 9)):
    assert cuda.cuImportExternalMemory(byref(made), byref(described(plain, type=type))) == INVALID_VALUE
assert cuda.cuImportExternalMemory(byref(made), byref(described(plain, type=9))) == NOT_SUPPORTED
for wrong in (described(plain, size=0), described(plain, flags=2)):
    assert cuda.cuImportExternalMemory(byref(made), byref(wrong)) == INVALID_VALUE
assert cuda.cuExternalMemoryGetMappedMipmappedArray(byref(made), None, create_string_buffer(120)) == INVALID_VALUE
def semaphore(type, fd, flags=0): return struct.pack("<i4xi12xI68x", type, fd, flags)
OPAQUE, TIMELINE = 1, 9
for type in range(12):
    wanted = UNKNOWN if type in (OPAQUE, TIMELINE) else INVALID_VALUE
    assert cuda.cuImportExternalSemaphore(byref(made), semaphore(type, plain)) == wanted
assert cuda.cuImportExternalSemaphore(byref(made), semaphore(TIMELINE, -1)) == INVALID_VALUE
assert cuda.cuImportExternalSemaphore(byref(made), semaphore(OPAQUE, plain, 8)) == INVALID_VALUE
assert made.value == 7
none, params = (c_void_p * 1)(), create_string_buffer(144)
assert cuda.cuDestroyExternalSemaphore(None) == INVALID_VALUE
graph = new(cuda.cuGraphCreate, 0)
node = new(cuda.cuGraphAddEmptyNode, graph, None, c_size_t(0))
executable = new(cuda.cuGraphInstantiateWithFlags, graph, c_uint64(0))
for verb in ("Signal", "Wait"):
    act = getattr(cuda, f"cu{verb}ExternalSemaphoresAsync")
    assert act(none, params, 1, None) == INVALID_HANDLE and act(None, params, 1, None) == INVALID_VALUE
    assert act(None, None, 0, None) == INVALID_VALUE
    name = f"ExternalSemaphores{verb}Node"
    add, count = getattr(cuda, f"cuGraphAdd{name}"), create_string_buffer(24)
    count[16] = 1
    assert add(byref(made), graph, None, c_size_t(0), count) == INVALID_VALUE
    assert add(byref(made), graph, None, c_size_t(0), None) == INVALID_VALUE
    assert getattr(cuda, f"cuGraph{name}GetParams")(node, params) == INVALID_VALUE
    assert getattr(cuda, f"cuGraph{name}SetParams")(node, params) == INVALID_VALUE
    assert getattr(cuda, f"cuGraphExec{name}SetParams")(executable, node, params) == INVALID_VALUE
"""
    )


def test_nodes_of_no_semaphores(simulate: Simulate) -> None:
    """As tests/gpu/semaphore_nodes.py shows it of NVIDIA's driver."""
    simulate(
        EXTERNAL
        + """
none, one = create_string_buffer(24), create_string_buffer(24)
one[16] = 1
def type_of(node):
    found = c_int(-1)
    ok(cuda.cuGraphNodeGetType(node, byref(found)))
    return found.value
for verb, other, number in (("Signal", "Wait", 8), ("Wait", "Signal", 9)):
    graph = new(cuda.cuGraphCreate, 0)
    first = new(cuda.cuGraphAddEmptyNode, graph, None, c_size_t(0))
    node = new(getattr(cuda, f"cuGraphAddExternalSemaphores{verb}Node"), graph, byref(first), c_size_t(1), none)
    params = create_string_buffer(struct.pack("<iiQ", number, 0, 0) + bytes(240))
    generic = new(cuda.cuGraphAddNode, graph, byref(node), c_size_t(1), params)
    assert type_of(node) == type_of(generic) == number
    read = create_string_buffer(b"7" * 24)
    ok(getattr(cuda, f"cuGraphExternalSemaphores{verb}NodeGetParams")(node, read))
    assert read.raw[:20] == bytes(20)
    assert getattr(cuda, f"cuGraphExternalSemaphores{other}NodeGetParams")(node, read) == INVALID_VALUE
    copy = new(cuda.cuGraphNodeFindInClone, node, new(cuda.cuGraphClone, graph))
    assert type_of(copy) == number
    executable = new(cuda.cuGraphInstantiateWithFlags, graph, c_uint64(0))
    for each, wanted in ((verb, 0), (other, INVALID_VALUE)):
        name = f"ExternalSemaphores{each}NodeSetParams"
        for params, result in ((none, wanted), (one, INVALID_VALUE), (None, INVALID_VALUE)):
            assert getattr(cuda, f"cuGraph{name}")(node, params) == result
            assert getattr(cuda, f"cuGraphExec{name}")(executable, node, params) == result
    ok(cuda.cuGraphLaunch(executable, None))
    ok(cuda.cuCtxSynchronize())
    ok(cuda.cuGraphDestroyNode(node))
"""
    )


def test_what_nvidias_driver_refuses_too(simulate: Simulate) -> None:
    simulate(
        EXTERNAL
        + """
fd, big = c_int(7), alloc(1 << 21)
def dma_buf(address, size, type=1, flags=0):
    return cuda.cuMemGetHandleForAddressRange(byref(fd), c_uint64(address), c_size_t(size), type, c_uint64(flags))
assert dma_buf(big.value, 1 << 21) == NOT_SUPPORTED  # as its attribute says; natively a card gives one
assert dma_buf(big.value + 8, 4096) == dma_buf(big.value, 100) == dma_buf(big.value, 1 << 22) == INVALID_VALUE
assert dma_buf(4096, 4096) == dma_buf(big.value, 4096, 2) == dma_buf(big.value, 4096, 1, 2) == INVALID_VALUE
assert fd.value == 7
luid, mask = create_string_buffer(b"\\7" * 8, 8), c_uint(7)
assert cuda.cuDeviceGetLuid(luid, byref(mask), 0) == NOT_SUPPORTED and cuda.cuDeviceGetLuid(luid, byref(mask), 9) == 101
assert cuda.cuDeviceGetLuid(None, byref(mask), 0) == INVALID_VALUE and (luid.raw, mask.value) == (b"\\7" * 8, 7)
assert cuda.cuProfilerInitialize(b"settings", b"out", 0) == NOT_SUPPORTED
# Of CUDA 3.1: no context is of that version.
low, n, INVALID_CONTEXT = c_uint(7), c_uint(7), 201
for name, *arguments in (
    ("cuMemAlloc", byref(low), 4096),
    ("cuMemAllocPitch", byref(low), byref(n), 100, 4, 4),
    ("cuMemGetInfo", byref(low), byref(n)),
    ("cuMemFree", 0),
    ("cuMemcpyHtoD", 4096, b"0123", 4),
    ("cuMemsetD2D16", 4096, 64, 1, 4, 4),
    ("cuMemcpy3DAsync", None, None),
    ("cuModuleGetGlobal", byref(low), byref(n), module(), b"counter"),
    ("cuTexRefGetAddress", byref(low), None),
):
    assert getattr(cuda, name)(*arguments) == INVALID_CONTEXT, name
assert (low.value, n.value) == (7, 7)
"""
    )


def test_arrays_mapped_later_and_planes(simulate: Simulate) -> None:
    simulate(
        EXTERNAL
        + """
class Deep(ctypes.Structure):
    _fields_ = [("width", c_size_t), ("height", c_size_t), ("depth", c_size_t), ("format", c_int), ("channels", c_uint),
                ("flags", c_uint)]
FLOAT, NV12, SPARSE, DEFERRED = 32, 0xB0, 0x40, 0x80
array = new(cuda.cuArray3DCreate_v2, byref(Deep(1024, 1024, 0, FLOAT, 1, 0)))
mipmap = new(cuda.cuMipmappedArrayCreate, byref(Deep(1024, 1024, 0, FLOAT, 1, 0)), 3)
told, infos = create_string_buffer(48), create_string_buffer(96)
for kind, made in (("Array", array), ("MipmappedArray", mipmap)):
    assert getattr(cuda, f"cu{kind}GetSparseProperties")(told, made) == INVALID_VALUE
    assert getattr(cuda, f"cu{kind}GetMemoryRequirements")(told, made, 0) == INVALID_VALUE
    assert getattr(cuda, f"cu{kind}GetMemoryRequirements")(told, made, 9) == 101
for flags in (SPARSE, DEFERRED):
    assert cuda.cuArray3DCreate_v2(byref(c_void_p()), byref(Deep(1024, 1024, 0, FLOAT, 1, flags))) == NOT_SUPPORTED
assert cuda.cuMemMapArrayAsync(None, 1, None) == INVALID_VALUE == cuda.cuMemMapArrayAsync(infos, 0, None)
assert cuda.cuMemMapArrayAsync(infos, 1, None) == INVALID_VALUE, "no array"
infos[8:16] = bytes(array)
assert cuda.cuMemMapArrayAsync(infos, 1, None) == NOT_SUPPORTED
infos[0] = 2
assert cuda.cuMemMapArrayAsync(infos, 1, None) == INVALID_VALUE, "neither an array nor a mipmapped one"
assert cuda.cuArrayGetPlane(byref(c_void_p()), array, 0) == INVALID_VALUE
assert cuda.cuArray3DCreate_v2(byref(c_void_p()), byref(Deep(64, 64, 0, NV12, 3, 0))) == INVALID_VALUE
"""
    )


def test_synchronous_memory(simulate: Simulate) -> None:
    simulate(
        EXTERNAL
        + """
SYNC_MEMOPS = 6
p, other, on, off, value = alloc(4096), alloc(4096), c_uint(1), c_uint(0), c_uint(9)
def told(address):
    ok(cuda.cuPointerGetAttribute(byref(value), SYNC_MEMOPS, c_uint64(address)))
    return value.value
ok(cuda.cuPointerSetAttribute(byref(on), SYNC_MEMOPS, c_uint64(p.value + 8)))
assert (told(p.value), told(p.value + 4095), told(other.value)) == (1, 1, 0)
# A copy and a fill wait for a kernel ahead of them, which other memory's do not.
called, let = threading.Event(), threading.Event()
function = ctypes.CFUNCTYPE(None, c_void_p)(lambda _: (called.set(), let.wait()))
def behind(call, *args, at_least_s=0.2):
    called.clear(), let.clear()
    ok(cuda.cuLaunchHostFunc(None, function, None))
    done = threading.Event()
    thread = threading.Thread(target=lambda: (ok(cuda.cuCtxSetCurrent(ctx)), ok(call(*args)), done.set()))
    thread.start()
    called.wait()
    waits = not done.wait(at_least_s)
    let.set()
    thread.join()
    ok(cuda.cuCtxSynchronize())
    return waits
def passes(call, *args): return not behind(call, *args, at_least_s=150)  # at once, however busy the machine is
ctx = c_void_p()
ok(cuda.cuCtxGetCurrent(byref(ctx)))
assert passes(cuda.cuMemcpyDtoD_v2, c_uint64(other.value + 64), other, c_size_t(16))
assert passes(cuda.cuMemsetD8_v2, other, 1, c_size_t(16))
assert behind(cuda.cuMemcpyDtoD_v2, p, other, c_size_t(16)) and behind(cuda.cuMemcpyDtoD_v2, other, p, c_size_t(16))
assert behind(cuda.cuMemsetD8_v2, p, 1, c_size_t(16))
ok(cuda.cuPointerSetAttribute(byref(off), SYNC_MEMOPS, p))
assert told(p.value) == 0 and passes(cuda.cuMemsetD8_v2, p, 1, c_size_t(16))
for attribute in (0, 1, 7, 17, 99):
    assert cuda.cuPointerSetAttribute(byref(on), attribute, p) == INVALID_VALUE
assert cuda.cuPointerSetAttribute(None, SYNC_MEMOPS, p) == INVALID_VALUE
assert cuda.cuPointerSetAttribute(byref(on), SYNC_MEMOPS, c_uint64(4096)) == INVALID_VALUE
"""
    )


LAUNCHES = (
    EXTERNAL
    + """
class Launch(ctypes.Structure):
    _fields_ = [("function", c_void_p), ("shape", c_uint * 7), ("stream", c_void_p), ("params", c_void_p)]
assert ctypes.sizeof(Launch) == 56
def launch_of(f, n, stream, args): return Launch(f, (c_uint * 7)(1, 1, 1, n, 1, 1, 0), stream, ctypes.addressof(args))
def together(launches, count=None, flags=0):
    list_ = (Launch * len(launches))(*launches)
    return cuda.cuLaunchCooperativeKernelMultiDevice(list_, len(launches) if count is None else count, flags)
def prepared(device):
    own = c_void_p()
    ok(cuda.cuDevicePrimaryCtxRetain(byref(own), device))
    ok(cuda.cuCtxSetCurrent(own))
    data = upload(words(32, device))
    args = params(data, c_uint(32), ctypes.c_ubyte(3), c_uint64(0))
    stream = new(cuda.cuStreamCreate, 1)
    return own, data, args, stream, launch_of(function(module(), b"scale").value, 32, stream.value, args)
"""
)


def test_a_launch_on_one_device(simulate: Simulate) -> None:
    simulate(
        LAUNCHES
        + """
own, data, args, stream, one = prepared(0)
ok(cuda.cuCtxSetCurrent(None))  # the stream says which context
ok(together([one]))
ok(cuda.cuCtxSetCurrent(own))
ok(cuda.cuStreamSynchronize(stream))
assert download(data, 32) == [3 * w for w in words(32, 0)]
TOO_LARGE = 720
big = Launch(one.function, (c_uint * 7)(1 << 20, 1, 1, 32, 1, 1, 0), one.stream, one.params)
assert together([big]) == TOO_LARGE
assert together([one], count=0) == together([one], flags=4) == together([one] * 2) == INVALID_VALUE
for stream in (None, 1, 2, 0x1234):
    assert together([Launch(one.function, one.shape, stream, one.params)]) == INVALID_HANDLE
assert cuda.cuLaunchCooperativeKernelMultiDevice(None, 1, 0) == INVALID_VALUE
current = c_void_p()
ok(cuda.cuCtxGetCurrent(byref(current)))
assert current.value == own.value
"""
    )


def test_a_launch_on_two_devices(vgpu_run: Run) -> None:
    program = """
sides = [prepared(0), prepared(1)]
for flags in range(4):
    ok(together([side[4] for side in sides], flags=flags))
for device, (own, data, args, stream, _) in enumerate(sides):
    ok(cuda.cuCtxSetCurrent(own))
    ok(cuda.cuStreamSynchronize(stream))
    assert download(data, 32) == [81 * w % 2**32 for w in words(32, device)]
assert together([sides[0][4], sides[0][4]]) == INVALID_VALUE, "a device twice"
other = Launch(sides[1][4].function, (c_uint * 7)(1, 1, 1, 16, 1, 1, 0), sides[1][4].stream, sides[1][4].params)
assert together([sides[0][4], other]) == INVALID_VALUE, "another shape"
# Without flags no kernel begins before what is in the streams of the others, and nothing later before all have ended.
called, let = threading.Event(), threading.Event()
function_ = ctypes.CFUNCTYPE(None, c_void_p)(lambda _: (called.set(), let.wait()))
ok(cuda.cuCtxSetCurrent(sides[0][0]))
ok(cuda.cuLaunchHostFunc(sides[0][3], function_, None))
called.wait()
ok(together([side[4] for side in sides]))
NOT_READY = 600
ok(cuda.cuCtxSetCurrent(sides[1][0]))
assert cuda.cuStreamQuery(sides[1][3]) == NOT_READY
let.set()
ok(cuda.cuStreamSynchronize(sides[1][3]))
"""
    done = vgpu_run([sys.executable, "-c", PRELUDE + KERNELS + LAUNCHES + program], gpu="h100:2")
    assert done.returncode == 0, (done.stdout, done.stderr)


def test_functions_of_newer_devices(simulate: Simulate) -> None:
    simulate(
        EXTERNAL
        + """
found = c_void_p(7)
library = new(cuda.cuLibraryLoadData, PTX, None, None, 0, None, None, 0)
for name in (b"scale", b"absent"):
    assert cuda.cuLibraryGetUnifiedFunction(byref(found), library, name) == INVALID_VALUE
assert cuda.cuLibraryGetUnifiedFunction(None, library, b"scale") == INVALID_VALUE
assert cuda.cuLibraryGetUnifiedFunction(byref(found), None, b"scale") == INVALID_HANDLE
assert found.value == 7
p, index, each = alloc(12288), c_size_t(7), create_string_buffer(64)
assert cuda.cuMemBatchDecompressAsync(each, c_size_t(1), 0, byref(index), None) == NOT_SUPPORTED
assert index.value == 0
assert cuda.cuMemBatchDecompressAsync(each, c_size_t(0), 1, None, None) == NOT_SUPPORTED
dims, strides = (c_uint64 * 4)(64, 32, 32, 8), (c_uint64 * 3)(128, 4096, 131072)
ones, map_ = (c_uint * 4)(1, 1, 1, 1), create_string_buffer(128)
wide = cuda.cuTensorMapEncodeIm2colWide
assert wide(map_, 6, 4, p, dims, strides, -1, 1, 64, 32, ones, 0, 0, 3, 0, 0) == NOT_SUPPORTED
assert wide(map_, 6, 0, p, dims, strides, -1, 1, 64, 32, ones, 0, 0, 3, 0, 0) == INVALID_VALUE
assert wide(None, 6, 4, p, dims, strides, -1, 1, 64, 32, ones, 0, 0, 3, 0, 0) == INVALID_VALUE
"""
    )
