"""A stream implies its context; the driver's version; what libraries query before their first kernel."""

import sys
import textwrap
from collections.abc import Callable
from subprocess import CompletedProcess

from tests.shim.client import PRELUDE
from tests.shim.simulated import KERNELS

Run = Callable[..., CompletedProcess[str]]


def test_a_stream_brings_its_context(vgpu_run: Run) -> None:
    """Without a current context, calls on a stream use the stream's context; the default streams have no context."""
    program = """
    current, other = context(), c_void_p()
    stream = new(cuda.cuStreamCreate, 1)
    p, q, n = c_uint64(), c_uint64(), c_size_t(4096)
    ok(cuda.cuMemAllocAsync(byref(p), n, stream))
    f, held = function(module(), b"scale"), c_void_p()
    ok(cuda.cuCtxSetCurrent(None))
    ok(cuda.cuMemAllocAsync(byref(q), n, stream))
    ok(cuda.cuMemsetD32Async(p, 5, c_size_t(1024), stream))
    ok(cuda.cuMemcpyDtoDAsync_v2(q, p, n, stream))
    ok(launch(f, 1024, stream, params(q, c_uint(1024), ctypes.c_uint8(3), c_uint64(0))))
    back = create_string_buffer(4096)
    ok(cuda.cuMemcpyDtoHAsync_v2(back, q, n, stream))
    ok(cuda.cuStreamSynchronize(stream))
    assert back.raw == pack([15] * 1024)
    ok(cuda.cuStreamQuery(stream))
    green, owner = c_void_p(1), c_void_p()
    ok(cuda.cuStreamGetGreenCtx(stream, byref(green)))
    ok(cuda.cuStreamGetCtx(stream, byref(owner)))
    both = c_void_p(), c_void_p(1)
    ok(cuda.cuStreamGetCtx_v2(stream, byref(both[0]), byref(both[1])))
    assert both[0].value == current.value and both[1].value is None
    assert green.value is None and owner.value == current.value
    for nobody in (None, c_void_p(1), c_void_p(2), c_void_p(12345)):
        assert cuda.cuStreamSynchronize(nobody) == 201
        assert cuda.cuMemAllocAsync(byref(held), n, nobody) == 201 and held.value is None
    ok(cuda.cuMemFreeAsync(p, stream))
    ok(cuda.cuMemFreeAsync(q, stream))
    assert cuda.cuMemFreeAsync(q, stream) == 1
    ok(cuda.cuDevicePrimaryCtxReset_v2(0))
    assert cuda.cuStreamSynchronize(stream) == 201, "the stream went with its context"
    context()
    ok(cuda.cuCtxSetCurrent(None))
    assert cuda.cuStreamQuery(stream) == 201, "the next life of a primary context is another one"
    """
    done = vgpu_run([sys.executable, "-c", PRELUDE + KERNELS + textwrap.dedent(program)])
    assert done.returncode == 0, (done.stdout, done.stderr)


def test_what_the_driver_says_bounds_its_names(vgpu_run: Run) -> None:
    """NVIDIA's runtimes demand a proof from newer drivers that is not known, so no device reports a newer driver."""
    program = """
    ok(cuda.cuInit(0))
    version, found = c_int(), c_void_p()
    ok(cuda.cuDriverGetVersion(byref(version)))
    assert cuda.cuGetProcAddress_v2(b"cuInit", byref(found), version.value, c_uint64(0), None) == 0 and found
    assert cuda.cuGetProcAddress_v2(b"cuInit", byref(found), version.value + 10, c_uint64(0), None) == 1
    print(version.value)
    """
    for gpu in ("h100", "forward"):
        done = vgpu_run([sys.executable, "-c", PRELUDE + textwrap.dedent(program)], gpu=gpu)
        assert done.stdout.split() == ["13000"], done.stderr


def test_tile_ir_is_refused_by_name(vgpu_run: Run) -> None:
    program = """
    context()
    library = c_void_p()
    print(cuda.cuLibraryLoadData(byref(library), b"\\x7fTileIR\\0\\r\\1", None, None, 0, None, None, 0))
    """
    done = vgpu_run([sys.executable, "-c", PRELUDE + textwrap.dedent(program)], env={"VGPU_LOG": "error"})
    assert done.stdout.split() == ["200"]
    assert "CUDA Tile IR" in done.stderr
