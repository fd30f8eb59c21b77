"""A simulated device's memory in the client's address space: the same bytes, at an alias of the device address."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator

import pytest

from tests.conftest import run_command, vgpud_of
from tests.patience import PATIENCE_S
from tests.shim.client import PRELUDE, environment

TOOLS = """
import resource, signal, subprocess
MIB = 1 << 20
cuda.vgpuHostAlias.restype, cuda.vgpuHostAlias.argtypes = c_void_p, (c_uint64,)

def alias(p, offset=0):
    return cuda.vgpuHostAlias(p.value + offset)

def synchronize():
    ok(cuda.cuCtxSynchronize())

def put(p, data):
    ok(cuda.cuMemcpyHtoD_v2(p, data, c_size_t(len(data))))

def look(p, nbytes):
    data = create_string_buffer(nbytes)
    ok(cuda.cuMemcpyDtoH_v2(data, p, c_size_t(nbytes)))
    return data.raw
"""

Simulate = Callable[..., None]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of a vgpud with two H100s."""
    with vgpud_of("h100:2", tmp_path_factory.mktemp("pair")) as endpoint:
        yield endpoint


@pytest.fixture
def simulate(pair: str) -> Simulate:
    def run(program: str, command: tuple[str, ...] = ()) -> None:
        text = PRELUDE + TOOLS + textwrap.dedent(program)
        done = run_command([*command, sys.executable, "-c", text], environment(pair), PATIENCE_S)
        assert done.returncode == 0, (done.stdout, done.stderr)

    return run


def test_both_see_the_same_bytes(simulate: Simulate) -> None:
    simulate(
        """
        context()
        assert cuda.vgpuDeviceIsSimulated(0) == cuda.vgpuDeviceIsSimulated(1) == 1
        for nbytes in (100, 5000, 3 * MIB + 1):
            p = alloc(nbytes)
            at = alias(p)
            assert at and at != p.value and at % 512 == p.value % 512
            assert alias(p, nbytes - 1) == at + nbytes - 1
            put(p, b"from here" + bytes(nbytes - 9))
            synchronize()
            assert ctypes.string_at(at, 9) == b"from here"
            ok(cuda.cuMemsetD8_v2(c_uint64(p.value + nbytes - 1), 7, c_size_t(1)))
            synchronize()
            assert ctypes.string_at(at + nbytes - 1, 1) == bytes([7])
            ctypes.memmove(at, b"through the alias"[:nbytes], min(nbytes, 17))
            assert look(p, 17) == b"through the alias"
        pooled = c_uint64()
        ok(cuda.cuMemAllocAsync(byref(pooled), c_size_t(4096), None))
        ctypes.memset(alias(pooled), 9, 4096)
        assert look(pooled, 4096) == bytes([9]) * 4096
        """
    )


def test_each_device_has_its_own(simulate: Simulate) -> None:
    simulate(
        """
        context()
        first, ctx = alloc(4096), c_void_p()
        ok(cuda.cuCtxCreate_v2(byref(ctx), 0, 1))
        second = alloc(4096)
        put(second, b"two")
        synchronize()
        assert ctypes.string_at(alias(second), 3) == b"two"
        assert ctypes.string_at(alias(first), 3) == bytes(3)
        ok(cuda.cuCtxDestroy_v2(ctx))
        assert alias(second) is None and alias(first)
        """
    )


def test_what_is_no_device_memory_has_none(simulate: Simulate) -> None:
    simulate(
        """
        assert cuda.vgpuDeviceIsSimulated(0) == -1 and alias(c_uint64(0)) is None
        context()
        assert cuda.vgpuDeviceIsSimulated(2) == cuda.vgpuDeviceIsSimulated(-1) == -1
        p, pinned = alloc(4096), c_void_p()
        assert alias(p, -4096) is None and alias(p, 4096) is None
        assert alias(c_uint64(0)) is None and alias(c_uint64(1 << 63)) is None
        assert alias(c_uint64(ctypes.addressof(pinned))) is None
        ok(cuda.cuMemHostAlloc(byref(pinned), c_size_t(4096), 0))
        assert alias(pinned) == pinned.value
        ok(cuda.cuMemFree_v2(p))
        assert alias(p) is None
        """
    )


def test_a_hosts_use_of_a_device_pointer_faults(simulate: Simulate) -> None:
    simulate(
        """
        context()
        p = alloc(4096)
        put(p, b"x")
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            ctypes.string_at(p.value, 1)
            os._exit(0)
        assert os.waitpid(child, 0)[1] & 127 == signal.SIGSEGV
        """
    )


def test_freed_memory_reads_as_zero_when_it_is_allocated_again(simulate: Simulate) -> None:
    simulate(
        """
        context()
        for nbytes in (4096, 20 << 30):
            p = alloc(nbytes)
            first = p.value
            ctypes.memset(alias(p), 5, 4096)
            ok(cuda.cuMemFree_v2(p))
            large = max(nbytes, 4 << 30)
            for _ in range(1000):  # until the address comes again: the reservation holds few of the large ones
                p = alloc(large)
                if p.value <= first < p.value + large:
                    break
                ok(cuda.cuMemFree_v2(p))
            else:
                raise AssertionError("the address did not come again")
            assert ctypes.string_at(alias(p, first - p.value), 4096) == bytes(4096)
            ok(cuda.cuMemFree_v2(p))
        """
    )


@pytest.mark.parametrize(
    "limit", ["--fsize=8388608", f"--as={64 << 30}"], ids=["size of files (NR02)", "size of the address space"]
)
def test_without_room_for_it_copies_do(simulate: Simulate, limit: str) -> None:
    simulate(
        """
        context()
        p = alloc(4096)
        assert alias(p) is None
        put(p, b"copied")
        assert look(p, 6) == b"copied"
        """,
        ("prlimit", limit),
    )


def test_after_a_reset_it_is_there_again(simulate: Simulate) -> None:
    simulate(
        """
        context()
        p = alloc(4096)
        ctypes.memset(alias(p), 5, 4096)
        ok(cuda.cuDevicePrimaryCtxReset_v2(0))
        assert alias(p) is None
        context()
        p = alloc(4096)
        put(p, b"again")
        synchronize()
        assert ctypes.string_at(alias(p), 8) == b"again" + bytes(3)
        """
    )
