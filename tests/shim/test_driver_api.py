"""Driver functions with data, on the simulator: what comes out is compared with the CPU."""

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.shim.client import PRELUDE

Run = Callable[..., CompletedProcess[str]]

KERNELS = r'''
PTX = rb"""
.version 7.0
.target sm_70
.address_size 64
.global .align 4 .u32 counter = 7;
.visible .entry scale(.param .u64 data, .param .u32 n, .param .u8 factor, .param .u64 unused) {
  .reg .pred %p<2>; .reg .u32 %r<8>; .reg .u16 %h<2>; .reg .u64 %d<5>;
  ld.param.u64 %d1, [data];
  ld.param.u32 %r1, [n];
  ld.param.u8 %h1, [factor];
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
  mad.lo.u32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 bra done;
  mul.wide.u32 %d2, %r5, 4;
  add.u64 %d3, %d1, %d2;
  ld.global.u32 %r6, [%d3];
  cvt.u32.u16 %r7, %h1;
  mul.lo.u32 %r6, %r6, %r7;
  st.global.u32 [%d3], %r6;
done:
  ret;
}
.visible .entry count() {
  .reg .u32 %r<2>;
  atom.global.add.u32 %r1, [counter], 1;
  ret;
}
""" + b"\0"
import random, struct
def words(n, seed=3):
    rng = random.Random(seed)
    return [rng.randrange(1 << 24) for _ in range(n)]
def pack(values): return struct.pack(f"<{len(values)}I", *values)
def upload(values):
    p = alloc(4 * len(values))
    ok(cuda.cuMemcpyHtoD_v2(p, pack(values), c_size_t(4 * len(values))))
    return p
def download(p, n):
    back = create_string_buffer(4 * n)
    ok(cuda.cuMemcpyDtoH_v2(back, p, c_size_t(4 * n)))
    return list(struct.unpack(f"<{n}I", back.raw))
def module(): return new(cuda.cuModuleLoadData, PTX)
def function(m, name): return new(cuda.cuModuleGetFunction, m, name)
def params(*values): return (c_void_p * len(values))(*(ctypes.cast(ctypes.pointer(v), c_void_p) for v in values))
def launch(f, n, stream, args):
    return cuda.cuLaunchKernel(f, (n + 63) // 64, 1, 1, 64, 1, 1, 0, stream, args, None)
'''


@pytest.fixture
def simulate(vgpu_run: Run) -> Callable[..., str]:
    def run(program: str, **changes: str) -> str:
        text = PRELUDE + KERNELS + textwrap.dedent(program)
        done = vgpu_run([sys.executable, "-c", text], env=changes)
        assert done.returncode == 0, (done.stdout, done.stderr)
        return done.stdout

    return run


Simulate = Callable[..., str]


def test_launch_forms(simulate: Simulate) -> None:
    """Parameters by pointers, by buffer, through a configuration, of a library's kernel; waited for and queued."""
    simulate(
        """
        context()
        n = 1001
        values = words(n)
        p = upload(values)
        f = function(module(), b"scale")
        ctypes.c_uint8_args = None
        args = params(p, c_uint(n), ctypes.c_uint8(3), c_uint64(0))
        for _ in range(2):
            ok(launch(f, n, None, args))
            values = [v * 3 % 2**32 for v in values]
        assert download(p, n) == values
        block = struct.pack("<QIBxxxQ", p.value, n, 5, 0)
        buffer, size = create_string_buffer(block, len(block)), c_size_t(len(block))
        extra = (c_void_p * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(size), 0)
        ok(cuda.cuLaunchKernel(f, 16, 1, 1, 64, 1, 1, 0, None, None, extra))
        values = [v * 5 % 2**32 for v in values]
        assert download(p, n) == values
        library = new(cuda.cuLibraryLoadData, PTX, None, None, 0, None, None, 0)
        kernel = new(cuda.cuLibraryGetKernel, library, b"scale")
        stream = new(cuda.cuStreamCreate, 1)
        attribute = struct.pack("<i4xi60x", 8, -1)  # priority
        attributes = create_string_buffer(attribute, 72)
        config = struct.pack("<7I4xQQI4x", 16, 1, 1, 64, 1, 1, 0, stream.value, ctypes.addressof(attributes), 1)
        for _ in range(2):
            ok(cuda.cuLaunchKernelEx(config, kernel, args, None))
            values = [v * 3 % 2**32 for v in values]
        ok(cuda.cuStreamSynchronize(stream))
        assert download(p, n) == values
        """
    )


def test_r02_parameter_layout_and_names(simulate: Simulate) -> None:
    simulate(
        """
        context()
        m = module()
        f = function(m, b"scale")
        layout = []
        offset, nbytes = c_size_t(), c_size_t()
        for i in range(4):
            ok(cuda.cuFuncGetParamInfo(f, c_size_t(i), byref(offset), byref(nbytes)))
            layout.append((offset.value, nbytes.value))
        assert layout == [(0, 8), (8, 4), (12, 1), (16, 8)], layout
        assert cuda.cuFuncGetParamInfo(f, c_size_t(4), byref(offset), byref(nbytes)) == 1
        name = c_char_p()
        ok(cuda.cuFuncGetName(byref(name), f))
        assert name.value == b"scale"
        back = c_void_p()
        ok(cuda.cuFuncGetModule(byref(back), f))
        assert back.value == m.value
        count = c_uint()
        ok(cuda.cuModuleGetFunctionCount(byref(count), m))
        assert count.value == 2
        functions = (c_void_p * 2)()
        ok(cuda.cuModuleEnumerateFunctions(functions, 2, m))
        names = set()
        for g in functions:
            ok(cuda.cuFuncGetName(byref(name), c_void_p(g)))
            names.add(name.value)
        assert names == {b"scale", b"count"}
        library = new(cuda.cuLibraryLoadData, PTX, None, None, 0, None, None, 0)
        ok(cuda.cuLibraryGetKernelCount(byref(count), library))
        assert count.value == 2
        kernels = (c_void_p * 2)()
        ok(cuda.cuLibraryEnumerateKernels(kernels, 2, library))
        ok(cuda.cuKernelGetLibrary(byref(back), c_void_p(kernels[0])))
        assert back.value == library.value
        value = c_int()
        ok(cuda.cuKernelGetAttribute(byref(value), 0, c_void_p(kernels[0]), 0))
        assert value.value == 1024
        blocks = c_int()
        ok(cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(byref(blocks), f, 256, c_size_t(0)))
        assert blocks.value == 8
        grid, size = c_int(), c_int()
        ok(cuda.cuOccupancyMaxPotentialBlockSize(byref(grid), byref(size), f, None, c_size_t(0), 0))
        multiprocessors = c_int()
        ok(cuda.cuDeviceGetAttribute(byref(multiprocessors), 16, 0))
        assert (grid.value, size.value) == (2 * multiprocessors.value, 1024), (grid.value, size.value)
        """
    )


def test_lazy_and_eager_libraries(simulate: Simulate) -> None:
    """A preserved image is sent when first used; a broken one is refused at the load if eager, at the use if lazy."""
    program = """
        context()
        preserved = (c_int * 1)(1)
        yes = (c_void_p * 1)(1)
        bad = b".version 7.0\\n.target sm_70\\n.address_size 64\\n.entry x() { bogus; }\\0"
        library = c_void_p()
        result = cuda.cuLibraryLoadData(byref(library), bad, None, None, 0, preserved, yes, 1)
        if os.environ.get("CUDA_MODULE_LOADING") == "EAGER":
            assert result == 218
        else:
            ok(result)
            assert cuda.cuLibraryGetKernel(byref(c_void_p()), library, b"x") == 218
            ok(cuda.cuLibraryUnload(library))
        library = new(cuda.cuLibraryLoadData, PTX, None, None, 0, preserved, yes, 1)
        ok(launch(new(cuda.cuLibraryGetKernel, library, b"count"), 640, None, None))
        address, nbytes = c_uint64(), c_size_t()
        ok(cuda.cuLibraryGetGlobal(byref(address), byref(nbytes), library, b"counter"))
        assert nbytes.value == 4 and download(address, 1) == [7 + 640]
        m = new(cuda.cuLibraryGetModule, library)
        again = c_uint64()
        ok(cuda.cuModuleGetGlobal_v2(byref(again), None, m, b"counter"))
        assert again.value == address.value
        assert cuda.cuModuleUnload(m) == 400
        ok(cuda.cuLibraryUnload(library))
        assert cuda.cuLibraryGetKernel(byref(c_void_p()), library, b"count") == 400
        """
    simulate(program)
    simulate(program, CUDA_MODULE_LOADING="EAGER")


def test_rectangles_and_boxes(simulate: Simulate) -> None:
    """Host to device, device to device, device to host; pitched, offset, deep; wider than a piece."""
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


def test_streams_events_and_host_functions(simulate: Simulate) -> None:
    simulate(
        """
        context()
        n = 500
        values = words(n)
        p = upload(values)
        f = function(module(), b"scale")
        one, two = new(cuda.cuStreamCreate, 1), new(cuda.cuStreamCreateWithPriority, 1, -99)
        priority = c_int()
        ok(cuda.cuStreamGetPriority(two, byref(priority)))
        assert priority.value == -5
        start, middle, end = (new(cuda.cuEventCreate, flags) for flags in (0, 2, 0))
        seen = []
        HOST = ctypes.CFUNCTYPE(None, c_void_p)
        CALLBACK = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_void_p)
        host = HOST(lambda data: seen.append(("host", data)))
        callback = CALLBACK(lambda stream, status, data: seen.append((stream, status, data)))
        args = params(p, c_uint(n), ctypes.c_uint8(2), c_uint64(0))
        ok(cuda.cuEventRecord(start, one))
        ok(launch(f, n, one, args))
        ok(cuda.cuLaunchHostFunc(one, host, c_void_p(11)))
        ok(cuda.cuEventRecord(middle, one))
        ok(cuda.cuStreamWaitEvent(two, middle, 0))
        ok(launch(f, n, two, args))
        ok(cuda.cuStreamAddCallback(two, callback, c_void_p(22), 0))
        ok(cuda.cuEventRecord(end, two))
        ok(cuda.cuEventSynchronize(end))
        assert seen == [("host", 11), (two.value, 0, 22)], seen
        assert download(p, n) == [v * 4 for v in values]
        ms = c_float(-1)
        ok(cuda.cuEventElapsedTime_v2(byref(ms), start, end))
        assert 0 < ms.value < 60000
        assert cuda.cuEventElapsedTime_v2(byref(ms), start, middle) == 400
        ok(cuda.cuStreamQuery(one))
        ok(cuda.cuStreamDestroy_v2(one))
        assert cuda.cuStreamDestroy_v2(one) == 400
        assert launch(f, n, one, args) == 400
        """
    )


@pytest.mark.parametrize("kind", ["pinned", "registered", "pageable"])
def test_a_copy_reads_what_the_host_function_before_it_wrote(simulate: Simulate, kind: str) -> None:
    """Also where the worker cannot see the memory: registered memory, and pageable memory in a synchronous copy."""
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


def test_link_and_files(simulate: Simulate, tmp_path: Path) -> None:
    simulate(
        """
        context()
        n = 100
        values = words(n)
        state = c_void_p()
        ok(cuda.cuLinkCreate_v2(0, None, None, byref(state)))
        ok(cuda.cuLinkAddData_v2(state, 1, PTX, c_size_t(len(PTX)), b"x", 0, None, None))
        image, size = c_void_p(), c_size_t()
        ok(cuda.cuLinkComplete(state, byref(image), byref(size)))
        data = ctypes.string_at(image.value, size.value)
        m = new(cuda.cuModuleLoadData, image)
        ok(cuda.cuLinkDestroy(state))
        assert cuda.cuLinkDestroy(state) == 400
        folder = os.environ["FOLDER"]
        for name, content in (("linked", data), ("text.ptx", PTX[:-1])):
            open(f"{folder}/{name}", "wb").write(content)
            for m in (m, new(cuda.cuModuleLoad, f"{folder}/{name}".encode())):
                p = upload(values)
                ok(launch(function(m, b"scale"), n, None, params(p, c_uint(n), ctypes.c_uint8(7), c_uint64(0))))
                assert download(p, n) == [v * 7 % 2**32 for v in values]
        open(f"{folder}/cut", "wb").write(b"\\x50\\xed\\x55\\xba\\x01\\0\\x10\\0" + b"\\xff" * 8)
        assert cuda.cuModuleLoad(byref(m), f"{folder}/cut".encode()) == 200
        assert cuda.cuModuleLoad(byref(m), folder.encode()) == 301
        """,
        FOLDER=str(tmp_path),
    )


def test_p03_a_killed_worker_is_survived(simulate: Simulate) -> None:
    """The process finds its worker, kills it, sees the error, resets, and goes on with a new worker."""
    simulate(
        """
        import signal
        ctx = context()
        n = 1000
        values = words(n)
        upload(values)
        def parent(pid):
            try:
                return int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1])
            except OSError:
                return 0
        def is_ours(pid):  # a descendant of the `vgpu run` that started us
            while pid > 1 and pid != os.getppid():
                pid = parent(pid)
            return pid > 1
        def name(pid):
            try:
                return open(f"/proc/{pid}/comm").read().strip()
            except OSError:
                return ""
        everyone = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
        victims = [pid for pid in everyone if name(pid) == "vgpu-worker" and is_ours(pid)]
        assert victims, "no worker found"
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        assert cuda.cuCtxSynchronize() == 46
        assert cuda.cuMemAlloc_v2(byref(c_uint64()), c_size_t(16)) == 46
        for _ in range(50):
            if cuda.cuDevicePrimaryCtxReset_v2(0) == 0:
                break
            time.sleep(0.1)
        fresh = context()
        assert fresh.value != ctx.value
        p = upload(values)
        ok(launch(function(module(), b"scale"), n, None, params(p, c_uint(n), ctypes.c_uint8(3), c_uint64(0))))
        assert download(p, n) == [v * 3 % 2**32 for v in values]
        """
    )


def test_a_context_is_created_by_empty_parameters(simulate: Simulate) -> None:
    """ctxcreate_v4: CUDA 13's cuCtxCreate is called with a zeroed struct as often as with NULL."""
    simulate("""
    ok(cuda.cuInit(0))
    params = (ctypes.c_byte * 24)()
    for given in (None, params):
        ctx = c_void_p()
        ok(cuda.cuCtxCreate_v4(byref(ctx), given, 0, 0))
        alloc(4096)
        ok(cuda.cuCtxDestroy_v2(ctx))
    ok(cuda.cuCtxCreate_v3(byref(ctx), params, 0, 0, 0))
    ok(cuda.cuCtxDestroy_v2(ctx))
    assert cuda.cuCtxCreate_v3(byref(ctx), None, 1, 0, 0) == 1
    assert cuda.cuCtxCreate_v3(byref(ctx), params, 1, 0, 0) == 801
    ctypes.c_uint64.from_buffer(params, 16).value = 4096  # shared with a graphics API
    assert cuda.cuCtxCreate_v4(byref(ctx), params, 0, 0) == 801
    """)


def test_limits_are_asked_for_once(simulate: Simulate, tmp_path: Path) -> None:
    """24 questions in each training step of PyTorch waited for an answer."""
    log = tmp_path / "log"
    simulate(
        """
    context()
    def limit(which):
        value = c_size_t()
        ok(cuda.cuCtxGetLimit(byref(value), which))
        return value.value
    before = [limit(0), limit(0), limit(0)]
    assert len(set(before)) == 1
    ok(cuda.cuCtxSetLimit(0, c_size_t(16384)))
    assert limit(0) == limit(0) == 16384
    assert limit(1) == limit(1) != 16384
    ctx = c_void_p()
    ok(cuda.cuCtxCreate_v2(byref(ctx), 0, 0))
    assert limit(0) == before[0]
    ok(cuda.cuCtxDestroy_v2(ctx))
    assert limit(0) == 16384
    ok(cuda.cuDevicePrimaryCtxReset_v2(0))
    context()
    assert limit(0) == limit(0) == before[0]
    """,
        VGPU_LOG="trace",
        VGPU_LOG_FILE=str(log),
    )
    asked = [line for line in log.read_text().splitlines() if "cuCtxGetLimit" in line]
    assert len(asked) == 11
    assert sum("waited" in line for line in asked) == 5


def test_nr13_names_of_null_are_bad_values(simulate: Simulate) -> None:
    simulate("""
    context()
    name = c_char_p()
    for get in (cuda.cuKernelGetName, cuda.cuFuncGetName):
        assert get(byref(name), None) == 1
        assert get(byref(name), c_void_p(12345)) == 400
    """)


def test_nr14_settings_of_core_dumps_are_kept(simulate: Simulate) -> None:
    simulate("""
    def get(function, attribute, nbytes=1024):
        value, n = create_string_buffer(nbytes), c_size_t(nbytes)
        result = function(attribute, value, byref(n))
        return result or value.raw[:n.value]
    def put(function, attribute, value):
        return function(attribute, value, byref(c_size_t(len(value))))
    both, own = cuda.cuCoredumpGetAttributeGlobal, cuda.cuCoredumpGetAttribute
    assert get(both, 1) == b"\\0" and get(both, 2) == b"\\1"  # before cuInit
    assert get(both, 5).startswith(b"core.cuda.") and get(both, 5).endswith(b"\\0")
    assert put(cuda.cuCoredumpSetAttributeGlobal, 1, b"\\1") == 0
    assert get(own, 1) == 3
    context()
    assert get(both, 1) == get(own, 1) == b"\\1"
    assert put(cuda.cuCoredumpSetAttribute, 5, b"here") == 0
    assert get(own, 5) == b"here\\0" and get(both, 5) != b"here\\0"
    assert put(cuda.cuCoredumpSetAttributeGlobal, 7, b"\\3\\0\\0\\0") == 0
    assert get(own, 7) == b"\\3\\0\\0\\0"
    n = c_size_t()
    ok(own(5, None, byref(n)))
    assert n.value == 5
    assert get(own, 5, 4) == 1 and get(own, 0) == get(own, 8) == 1
    assert put(cuda.cuCoredumpSetAttributeGlobal, 7, b"\\xff\\0\\0\\0") == 1
    assert put(cuda.cuCoredumpSetAttributeGlobal, 5, b"x" * 1024) == 1
    assert put(cuda.cuCoredumpSetAttribute, 6, b"pipe") == 800
    """)


def test_nr15_multiprocessors_are_a_resource(simulate: Simulate) -> None:
    simulate("""
    ctx = context()
    count = c_int()
    ok(cuda.cuDeviceGetAttribute(byref(count), 16, 0))
    for function, of in ((cuda.cuDeviceGetDevResource, 0), (cuda.cuCtxGetDevResource, ctx)):
        resource = (c_uint * 36)()
        ok(function(of, resource, 1))
        assert resource[0] == 1 and resource[24] == count.value
        assert function(of, resource, 0) == 1 and function(of, None, 1) == 1
    assert cuda.cuDeviceGetDevResource(99, resource, 1) == 101
    """)


def test_nr04_a_blocking_launch_reports_its_own_fault(simulate: Simulate) -> None:
    program = """
    context()
    f = function(module(), b"scale")
    args = params(c_uint64(16), c_uint(64), c_uint(3), c_uint64(0))
    p = upload(words(64))
    good = params(p, c_uint(64), c_uint(3), c_uint64(0))
    ok(launch(f, 64, None, good))
    if os.environ.get("CUDA_LAUNCH_BLOCKING") == "1":
        assert launch(f, 64, None, args) == 700
    else:
        ok(launch(f, 64, None, args))
    assert cuda.cuCtxSynchronize() == 700
    """
    simulate(program, CUDA_LAUNCH_BLOCKING="1")
    simulate(program, CUDA_LAUNCH_BLOCKING="0")
