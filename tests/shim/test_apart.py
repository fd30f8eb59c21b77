"""Device memory at addresses that the client chooses, which is to behave as the driver's own."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.daemon.running import vgpud_with_real_workers
from tests.shim import client
from tests.shim.claim_programs import TOOLS
from tests.shim.client import PRELUDE

Run = Callable[..., CompletedProcess[str]]

# The program uses all addresses at which the simulator would go on, and some below.
BESIEGED = """
place = next_address()
occupy(place, 200 << 30)
taken = (place - 256 * MIB, place + (200 << 30))

def made(make, nbytes):
    result, p = make(nbytes)
    assert result == 0, result
    assert p + nbytes <= taken[0] or p >= taken[1], hex(p)
    return p
"""


@pytest.fixture
def besieged(vgpu_run: Run) -> Callable[..., str]:
    def run(program: str, gpu: str = "h100") -> str:
        text = PRELUDE + TOOLS + BESIEGED + textwrap.dedent(program)
        done = vgpu_run([sys.executable, "-c", text], gpu=gpu)
        assert done.returncode == 0, (done.stdout, done.stderr)
        return done.stderr

    return run


def test_small_allocations_share_granules(besieged: Callable[..., str]) -> None:
    """And what is freed is given out again, or back."""
    besieged(
        """
        before = free_nbytes()
        sizes = [1, 512, 513, 1000, 4096, 100 << 10] * 50
        ps = [made(linear, nbytes) for nbytes in sizes]
        assert all(p % 512 == 0 for p in ps)
        places = sorted(zip(ps, sizes))
        assert all(p + nbytes <= q for (p, nbytes), (q, _) in zip(places, places[1:]))
        assert before - free_nbytes() <= 8 * MIB
        for p in ps[::2]:
            ok(cuda.cuMemFree_v2(c_uint64(p)))
        ps = ps[1::2] + [made(linear, nbytes) for nbytes in sizes[::2]]
        assert before - free_nbytes() <= 8 * MIB
        for p in ps:
            ok(cuda.cuMemFree_v2(c_uint64(p)))
            assert cuda.cuMemFree_v2(c_uint64(p)) == 1
        assert before - free_nbytes() <= 2 * MIB
        """
    )


def test_a_context_takes_its_memory_along(besieged: Callable[..., str]) -> None:
    besieged(
        """
        kept = made(linear, 1000)
        own_context = c_void_p()
        ok(cuda.cuCtxCreate_v2(byref(own_context), 0, 0))
        before = free_nbytes()
        for nbytes in (1000, 2 * MIB, 64 * MIB):
            made(linear, nbytes)
        p = made(stream_ordered, 4 * MIB)
        ok(cuda.cuMemFreeAsync(c_uint64(p), None))
        assert before - free_nbytes() >= 68 * MIB
        ok(cuda.cuCtxDestroy_v2(own_context))
        ctx = context()
        assert free_nbytes() >= before
        ok(cuda.cuMemsetD8_v2(c_uint64(kept), 1, c_size_t(1000)))
        ok(cuda.cuDevicePrimaryCtxReset_v2(0))
        assert cuda.cuMemFree_v2(c_uint64(kept)) != 0
        context()
        ok(cuda.cuMemFree_v2(c_uint64(made(linear, 5 * MIB))))
        """
    )


def test_memory_freed_in_a_streams_order_stays_until_the_stream_is_there(besieged: Callable[..., str]) -> None:
    besieged(
        """
        stream = new(cuda.cuStreamCreate, 1)
        gate = threading.Event()
        function = ctypes.CFUNCTYPE(None, c_void_p)(lambda _: gate.wait())
        def ordered(nbytes):
            p = c_uint64()
            return cuda.cuMemAllocAsync(byref(p), c_size_t(nbytes), stream), p.value
        p = made(ordered, 4 * MIB)
        before = free_nbytes()
        ok(cuda.cuLaunchHostFunc(stream, function, None))
        ok(cuda.cuMemsetD8Async(c_uint64(p), 5, c_size_t(4 * MIB), stream))
        ok(cuda.cuMemFreeAsync(c_uint64(p), stream))
        assert cuda.cuMemFreeAsync(c_uint64(p), stream) == 1
        q = made(ordered, 4 * MIB)
        assert q != p
        gate.set()
        ok(cuda.cuStreamSynchronize(stream))
        ok(cuda.cuMemFree_v2(c_uint64(q)))  # which frees what streams are done with
        assert free_nbytes() >= before + 4 * MIB
        """
    )


def test_frees_beside_a_capture(besieged: Callable[..., str]) -> None:
    """NVIDIA's driver would end the capture if the context were waited for. In the capture it frees only what the graph
    allocates."""
    besieged(
        """
        stream, graph, count = new(cuda.cuStreamCreate, 1), c_void_p(), c_size_t()
        last = made(linear, 2 * MIB)
        before = free_nbytes()
        p, q, r = made(linear, 4 * MIB), made(stream_ordered, 8 * MIB), made(stream_ordered, 16 * MIB)
        ok(cuda.cuStreamBeginCapture_v2(stream, 2))
        ok(cuda.cuMemFree_v2(c_uint64(p)))
        assert cuda.cuMemFree_v2(c_uint64(p)) == 1
        ok(cuda.cuMemFreeAsync(c_uint64(q), None))
        assert before - free_nbytes() >= 28 * MIB, "not before the context has been waited for"
        ok(cuda.cuMemsetD8Async(c_uint64(r), 5, c_size_t(16 * MIB), stream))
        ok(cuda.cuStreamEndCapture(stream, byref(graph)))
        ok(cuda.cuGraphGetNodes(graph, None, byref(count)))
        assert count.value == 1
        ok(cuda.cuMemFree_v2(c_uint64(last)))
        assert 14 * MIB <= before + 2 * MIB - free_nbytes() <= 16 * MIB
        ok(cuda.cuStreamBeginCapture_v2(stream, 2))
        cuda.cuMemFreeAsync(c_uint64(r), stream)
        assert cuda.cuStreamEndCapture(stream, byref(graph)) == 901
        """
    )


def test_a_pool_of_another_device_has_its_memory_there(besieged: Callable[..., str]) -> None:
    besieged(
        """
        current, second, pool = c_void_p(), c_void_p(), c_void_p()
        ok(cuda.cuCtxGetCurrent(byref(current)))
        ok(cuda.cuDevicePrimaryCtxRetain(byref(second), 1))
        ok(cuda.cuDeviceGetDefaultMemPool(byref(pool), 1))
        ok(cuda.cuCtxSetCurrent(second))
        stream = new(cuda.cuStreamCreate, 1)
        ok(cuda.cuCtxSetCurrent(current))
        def of_pool(nbytes):
            p = c_uint64()
            return cuda.cuMemAllocFromPoolAsync(byref(p), c_size_t(nbytes), pool, None), p.value
        def of_stream(nbytes):
            p = c_uint64()
            return cuda.cuMemAllocAsync(byref(p), c_size_t(nbytes), stream), p.value
        place = of_pool(64 * MIB)[1]
        occupy(place + 64 * MIB, 60 << 30)
        for make in (of_pool, of_stream):
            result, p = make(64 * MIB)
            assert result == 0
            assert p != place
            ordinal = c_int()
            ok(cuda.cuPointerGetAttribute(byref(ordinal), 9, c_uint64(p)))
            assert ordinal.value == 1
            for device, access in ((0, 0), (1, 3)):
                location, flags = (c_int * 2)(1, device), c_uint64(9)
                ok(cuda.cuMemGetAccess(byref(flags), location, c_uint64(p)))
                assert flags.value == access
        """,
        gpu="h100:2",
    )


def test_it_is_not_at_an_alias(besieged: Callable[..., str]) -> None:
    """The file that this process shares with the simulator has other memory at that place."""
    besieged(
        """
        cuda.vgpuHostAlias.restype = c_void_p
        for p, is_apart in ((place - 256 * MIB, False), (made(linear, 2 * MIB), True), (made(linear, 1000), True)):
            alias = cuda.vgpuHostAlias(c_uint64(p))
            assert (alias is None) == is_apart
        """
    )


def test_it_has_no_handle_for_other_processes(besieged: Callable[..., str]) -> None:
    stderr = besieged(
        """
        p = made(linear, 2 * MIB)
        handle = create_string_buffer(64)
        assert cuda.cuIpcGetMemHandle(handle, c_uint64(p)) == 801
        capable = c_int(7)
        ok(cuda.cuPointerGetAttribute(byref(capable), 10, c_uint64(p)))  # IS_LEGACY_CUDA_IPC_CAPABLE
        assert capable.value == 0
        """
    )
    assert "cuIpcGetMemHandle: CUDA_ERROR_NOT_SUPPORTED" in stderr


def test_a_peer_may_use_what_was_allocated_before_and_after(besieged: Callable[..., str]) -> None:
    besieged(
        """
        def access(p):
            location, flags = (c_int * 2)(1, 1), c_uint64(9)
            ok(cuda.cuMemGetAccess(byref(flags), location, c_uint64(p // (2 * MIB) * 2 * MIB)))
            return flags.value
        p = made(linear, 2 * MIB)
        assert access(p) == 0
        first, second = c_void_p(), c_void_p()
        ok(cuda.cuCtxGetCurrent(byref(first)))
        ok(cuda.cuDevicePrimaryCtxRetain(byref(second), 1))
        ok(cuda.cuCtxSetCurrent(second))
        ok(cuda.cuCtxEnablePeerAccess(first, 0))
        ok(cuda.cuCtxSetCurrent(first))
        q = made(linear, 1000)
        assert access(p) == access(q) == 3
        """,
        gpu="h100:2",
    )


def test_a_share_counts_it(tmp_path: Path) -> None:
    share = "[[shares]]\nname = 's'\nmemory_mib = 4096\n"
    token = "[[tokens]]\nname = 't'\nvalue = 'apart-apart-apart-apart'\nshare = 's'\n"
    program = """
        left = free_nbytes()
        assert left <= 4096 * MIB
        p = made(linear, left // 2 // MIB * MIB)
        assert linear(left // 2 // MIB * MIB + 4 * MIB)[0] == 2
        ok(cuda.cuMemFree_v2(c_uint64(p)))
        ok(cuda.cuMemFree_v2(c_uint64(made(linear, left // 2 // MIB * MIB + 4 * MIB))))
        """
    for host in vgpud_with_real_workers(tmp_path, share + token):
        text = TOOLS + BESIEGED + textwrap.dedent(program)
        client.run(str(host.endpoint), text, VGPU_TOKEN="apart-apart-apart-apart")
