"""Copies of every kind, on the simulator: the results are compared with the CPU's."""

import pytest

from tests.shim.simulated import Simulate


def test_rectangles_and_boxes(simulate: Simulate) -> None:
    """Host to device, device to device, device to host; pitched, offset, three-dimensional; wider than one piece."""
    simulate(
        """
        class Copy(ctypes.Structure):
            _fields_ = [(n, c_uint64) for n in "sx sy sz sl".split()] + [("st", c_int)] + [
                (n, c_uint64) for n in "sh sd sa r0 sp sH dx dy dz dl".split()] + [("dt", c_int)] + [
                (n, c_uint64) for n in "dh dd da r1 dp dH w h d".split()]
        assert ctypes.sizeof(Copy) == 200
        HOST, DEVICE = 1, 2
        context()
        wide = 1 << 21
        for width, height, depth, pitch, rows in (
            (37, 5, 3, 64, 7), (wide, 3, 1, wide + 512, 3), (1, 4000, 1, 512, 4000)
        ):
            source = os.urandom(pitch * rows * depth)
            size = c_size_t(len(source))
            a, b = alloc(len(source)), alloc(len(source))
            ok(cuda.cuMemsetD8_v2(a, 0, size))
            ok(cuda.cuMemsetD8_v2(b, 0, size))
            x = 3 if width < 100 else 0
            text, back = create_string_buffer(source, len(source)), create_string_buffer(len(source))
            box = dict(sx=x, sp=pitch, sH=rows, dx=x, dp=pitch, dH=rows, w=width, h=height, d=depth)
            here, there = ctypes.addressof(text), ctypes.addressof(back)
            ok(cuda.cuMemcpy3D_v2(byref(Copy(st=HOST, sh=here, dt=DEVICE, dd=a.value, **box))))
            ok(cuda.cuMemcpy3D_v2(byref(Copy(st=DEVICE, sd=a.value, dt=DEVICE, dd=b.value, **box))))
            ok(cuda.cuMemcpy3DAsync_v2(byref(Copy(st=DEVICE, sd=b.value, dt=HOST, dh=there, **box)), None))
            want = bytearray(len(source))
            for z in range(depth):
                for y in range(height):
                    at = (z * rows + y) * pitch + x
                    want[at : at + width] = source[at : at + width]
            assert back.raw == bytes(want)
            inside = Copy(st=HOST, sh=here, dt=DEVICE, dd=a.value, dy=1, **(box | dict(h=rows)))
            assert depth == 1 or cuda.cuMemcpy3D_v2(byref(inside)) == 1
            array = Copy(st=HOST, dt=3, w=1, h=1, d=1, sh=here)
            assert cuda.cuMemcpy3D_v2(byref(array)) == 400  # no array
            ok(cuda.cuMemFree_v2(a))
            assert cuda.cuMemcpy3D_v2(byref(Copy(st=HOST, sh=here, dt=DEVICE, dd=a.value, **box))) == 1
            ok(cuda.cuMemFree_v2(b))
        p = alloc(64 * 10)
        ok(cuda.cuMemsetD32_v2(p, 1, c_size_t(160)))
        ok(cuda.cuMemsetD2D16_v2(p, c_size_t(64), 0xABCD, c_size_t(4), c_size_t(10)))
        got = download(p, 160)
        assert got == [0xABCDABCD if i % 16 < 2 else 1 for i in range(160)]
        """
    )


def test_untyped_copies_and_pointer_kinds(simulate: Simulate) -> None:
    simulate(
        """
        context()
        n = 3000
        values = words(n)
        source, back = create_string_buffer(pack(values), 4 * n), create_string_buffer(4 * n)
        a, b = alloc(4 * n), alloc(4 * n)
        pinned = c_void_p()
        ok(cuda.cuMemHostAlloc(byref(pinned), c_size_t(4 * n), 0))
        size = c_size_t(4 * n)
        address = lambda x: c_uint64(ctypes.addressof(x))
        ok(cuda.cuMemcpy(a, address(source), size))
        ok(cuda.cuMemcpy(b, a, size))
        ok(cuda.cuMemcpyAsync(c_uint64(pinned.value), b, size, None))
        ok(cuda.cuStreamSynchronize(None))
        assert ctypes.string_at(pinned.value, 4 * n) == source.raw
        ok(cuda.cuMemcpy(address(back), c_uint64(pinned.value), size))
        assert back.raw == source.raw
        device = c_uint64()
        ok(cuda.cuMemHostGetDevicePointer_v2(byref(device), pinned, 0))
        ok(launch(function(module(), b"scale"), n, None, params(device, c_uint(n), ctypes.c_uint8(9), c_uint64(0))))
        ok(cuda.cuCtxSynchronize())
        assert list(struct.unpack(f"<{n}I", ctypes.string_at(pinned.value, 4 * n))) == [v * 9 % 2**32 for v in values]
        kind, base, nbytes = c_int(), c_uint64(), c_size_t()
        for pointer, want in ((a.value + 5, 2), (pinned.value + 8, 1)):
            ok(cuda.cuPointerGetAttribute(byref(kind), 2, c_uint64(pointer)))
            assert kind.value == want
            ok(cuda.cuMemGetAddressRange_v2(byref(base), byref(nbytes), c_uint64(pointer)))
        ok(cuda.cuMemFreeHost(pinned))
        assert cuda.cuPointerGetAttribute(byref(kind), 2, c_uint64(pinned.value)) == 1
        """
    )


@pytest.mark.parametrize("kind", ["pinned", "registered", "pageable"])
def test_a_copy_reads_what_the_host_function_before_it_wrote(simulate: Simulate, kind: str) -> None:
    """This holds even for memory that the worker does not map: registered, and pageable in a synchronous copy."""
    simulate(
        f"""
        kind = {kind!r}
        context()
        n = 2000
        size = c_size_t(4 * n)
        if kind == "pinned":
            memory = c_void_p()
            ok(cuda.cuMemHostAlloc(byref(memory), size, 0))
        else:
            block = create_string_buffer(4 * n)
            memory = c_void_p(ctypes.addressof(block))
            if kind == "registered":
                ok(cuda.cuMemHostRegister_v2(memory, size, 0))
        ctypes.memset(memory.value, 0, 4 * n)
        values = words(n)
        def write(_):
            time.sleep(0.2)
            ctypes.memmove(memory.value, pack(values), 4 * n)
        host = ctypes.CFUNCTYPE(None, c_void_p)(write)
        stream, p = new(cuda.cuStreamCreate, 0), alloc(4 * n)
        ok(cuda.cuLaunchHostFunc(stream, host, None))
        if kind == "pageable":
            ok(cuda.cuMemcpyHtoD_v2(p, memory, size))
        else:
            ok(cuda.cuMemcpyHtoDAsync_v2(p, memory, size, stream))
        ok(cuda.cuStreamSynchronize(stream))
        assert download(p, n) == values
        """
    )
