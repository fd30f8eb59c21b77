"""Arrays as CUDA 3.1 describes them, and batches of boxes between arrays and memory."""

from __future__ import annotations

from collections.abc import Callable

Simulate = Callable[..., str]

OLD = """
context()
class Flat(ctypes.Structure):
    _fields_ = [("width", c_uint), ("height", c_uint), ("format", c_int), ("channels", c_uint)]
class Deep(ctypes.Structure):
    _fields_ = [("width", c_uint), ("height", c_uint), ("depth", c_uint), ("format", c_int), ("channels", c_uint),
                ("flags", c_uint)]
UINT32 = 3
"""


def test_a_row_written_and_read(simulate: Simulate) -> None:
    simulate(
        OLD
        + """
array = new(cuda.cuArrayCreate, byref(Flat(64, 0, UINT32, 1)))
other = new(cuda.cuArray3DCreate, byref(Deep(64, 0, 0, UINT32, 1, 0)))
found, deep = Flat(), Deep()
ok(cuda.cuArrayGetDescriptor(byref(found), array))
ok(cuda.cuArray3DGetDescriptor(byref(deep), other))
assert (found.width, found.height, found.format, found.channels) == (64, 0, UINT32, 1)
assert (deep.width, deep.height, deep.depth, deep.flags) == (64, 0, 0, 0)
values, back = words(64), create_string_buffer(256)
ok(cuda.cuMemcpyHtoA(array, 0, pack(values), 256))
ok(cuda.cuMemcpyAtoA(other, 16, array, 0, 240))
ok(cuda.cuMemcpyAtoH(back, other, 16, 240))
assert list(struct.unpack("<60I", back.raw[:240])) == values[:60]
s = new(cuda.cuStreamCreate, 1)
ok(cuda.cuMemcpyHtoAAsync(array, 0, pack(values[::-1]), 256, s))
ok(cuda.cuMemcpyAtoHAsync(back, array, 0, 256, s))
ok(cuda.cuStreamSynchronize(s))
assert list(struct.unpack("<64I", back.raw)) == values[::-1]
assert cuda.cuArrayCreate(byref(c_void_p()), None) == 1 and cuda.cuArrayGetDescriptor(None, array) == 1
"""
    )


def test_normalised_formats(simulate: Simulate) -> None:
    """UNORM_INT8X1 to SNORM_INT16X4: the format says how many channels there are, and what an element's bytes are."""
    simulate(
        OLD
        + """
for format in range(0xc0, 0xcc):
    channels, nbytes = 1 << (format - 0xc0) % 3, 1 + (format - 0xc0) // 3 % 2
    array = new(cuda.cuArrayCreate, byref(Flat(64, 0, format, channels)))
    values, back = bytes(i % 251 for i in range(64 * channels * nbytes)), create_string_buffer(64 * channels * nbytes)
    ok(cuda.cuMemcpyHtoA(array, 0, values, len(values)))
    ok(cuda.cuMemcpyAtoH(back, array, 0, len(values)))
    assert back.raw == values
    assert cuda.cuMemcpyHtoA(array, 0, values + bytes(1), len(values) + 1) == 1  # longer than the row
    assert cuda.cuArrayCreate(byref(c_void_p()), byref(Flat(64, 0, format, 4 if channels < 4 else 2))) == 1
for format in (0xbf, 0xcc):
    assert cuda.cuArrayCreate(byref(c_void_p()), byref(Flat(64, 0, format, 1))) == 1
"""
    )


def test_boxes_in_a_batch(simulate: Simulate) -> None:
    simulate(
        OLD
        + """
class Pointer(ctypes.Structure):
    _fields_ = [("ptr", c_uint64), ("row", c_size_t), ("layer", c_size_t), ("hint", c_int * 2)]
class Place(ctypes.Structure):
    _fields_ = [("array", c_void_p), ("offset", c_size_t * 3)]
class Either(ctypes.Union):
    _fields_ = [("pointer", Pointer), ("place", Place)]
class Side(ctypes.Structure):
    _fields_ = [("type", c_int), ("op", Either)]
class Box(ctypes.Structure):
    _fields_ = [("src", Side), ("dst", Side), ("extent", c_size_t * 3), ("order", c_int), ("flags", c_uint)]
def memory(p, row): return Side(1, Either(pointer=Pointer(p, row, 0, (c_int * 2)(0, 0))))
def in_array(a, x, y): return Side(2, Either(place=Place(a, (c_size_t * 3)(x, y, 0))))
assert ctypes.sizeof(Box) == 112
array = new(cuda.cuArrayCreate, byref(Flat(8, 4, UINT32, 1)))
s = new(cuda.cuStreamCreate, 1)
values = words(32)
device, out = upload(values), alloc(128)
boxes = (Box * 2)(
    Box(memory(device.value, 8), in_array(array.value, 0, 0), (c_size_t * 3)(8, 4, 1), 1, 0),
    Box(in_array(array.value, 2, 1), memory(out.value, 4), (c_size_t * 3)(4, 3, 1), 1, 0),
)
failed = c_size_t(9)
ok(cuda.cuMemcpy3DBatchAsync(2, boxes, byref(failed), c_uint64(0), s))
ok(cuda.cuStreamSynchronize(s))
assert failed.value == 9
assert download(out, 12) == [values[8 * y + x] for y in (1, 2, 3) for x in (2, 3, 4, 5)]
boxes[1].src.type = 7
assert cuda.cuMemcpy3DBatchAsync(2, boxes, byref(failed), c_uint64(0), s) == 1 and failed.value == 1
assert cuda.cuMemcpy3DBatchAsync_v2(2, boxes, c_uint64(0), s) == 1
assert cuda.cuMemcpy3DBatchAsync_v2(1, boxes, c_uint64(0), None) == 1, "not the default stream"
"""
    )


def test_notifications_that_never_come(simulate: Simulate) -> None:
    simulate(
        """
ok(cuda.cuInit(0))
handle = c_void_p()
function = ctypes.CFUNCTYPE(None)(lambda: None)
ok(cuda.cuDeviceRegisterAsyncNotification(0, function, None, byref(handle)))
assert cuda.cuDeviceRegisterAsyncNotification(9, function, None, byref(handle)) == 101
assert cuda.cuDeviceUnregisterAsyncNotification(1, handle) == 1
ok(cuda.cuDeviceUnregisterAsyncNotification(0, handle))
assert cuda.cuDeviceUnregisterAsyncNotification(0, handle) == 1
"""
    )
