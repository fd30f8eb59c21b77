"""Unified addressing: device memory never overlaps memory that the program maps before or after the allocation.

With all memory of an H200 allocated, device memory overlapped the heap of one process in six: the worker's driver
chooses addresses near those at which every process loads its libraries.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

from tests.shim.client import PRELUDE

TOOLS = """
import resource
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = c_void_p
libc.mmap.argtypes = (c_void_p, c_size_t, c_int, c_int, c_int, ctypes.c_long)
ANONYMOUS_PRIVATE_FIXED_NOREPLACE, MIB = 0x100022, 1 << 20

def own(address, nbytes=4096):
    '''Memory of the program's own at this address; whether it could be had there.'''
    return libc.mmap(address, nbytes, 3, ANONYMOUS_PRIVATE_FIXED_NOREPLACE, -1, 0) == address

def linear(nbytes):
    p = c_uint64(0xdead)
    return cuda.cuMemAlloc_v2(byref(p), c_size_t(nbytes)), p.value

def pitched(nbytes):
    p, pitch = c_uint64(0xdead), c_size_t()
    return cuda.cuMemAllocPitch_v2(byref(p), byref(pitch), c_size_t(4096), c_size_t(nbytes // 4096), 4), p.value

def stream_ordered(nbytes):
    p = c_uint64(0xdead)
    return cuda.cuMemAllocAsync(byref(p), c_size_t(nbytes), None), p.value

def reserved(nbytes):
    p = c_uint64(0xdead)
    return cuda.cuMemAddressReserve(byref(p), c_size_t(nbytes), c_size_t(0), c_uint64(0), c_uint64(0)), p.value

def next_address():
    '''Where the simulator puts the next allocation of 256 MiB: from here on the addresses are free.'''
    result, first = linear(256 * MIB)
    assert result == 0
    return first + 256 * MIB
context()
"""

# The program maps memory wherever a driver may put the next allocations, before and behind the first one.
AROUND = """
result, first = linear(256 * MIB)
assert result == 0
places = [first + i * 64 * MIB for i in range(-40, 40)]
places = [place for place in places if own(place)]
assert places
for make in makers:
    for i in range(6):
        result, p = make(256 * MIB)
        assert result == 0
        assert not any(p <= place < p + 256 * MIB for place in places), hex(p)
        assert not own(p) and not own(p + 255 * MIB)
ok(cuda.cuCtxSynchronize())
for place in places:
    ctypes.memset(place, 7, 64)
    ok(cuda.cuMemcpyHtoD_v2(c_uint64(first), c_void_p(place), c_size_t(64)))
    ok(cuda.cuMemcpyDtoH_v2(c_void_p(place + 100), c_uint64(first), c_size_t(64)))
    assert ctypes.string_at(place + 100, 64) == bytes([7]) * 64
"""

Run = Callable[..., CompletedProcess[str]]


@pytest.fixture
def simulate(vgpu_run: Run) -> Callable[[str], None]:
    def run(program: str) -> None:
        done = vgpu_run([sys.executable, "-c", PRELUDE + TOOLS + textwrap.dedent(program)])
        assert done.returncode == 0, (done.stdout, done.stderr)

    return run


Simulate = Callable[[str], None]


@pytest.mark.parametrize("make", ["linear", "pitched", "stream_ordered"])
def test_what_lies_over_the_programs_memory_is_allocated_elsewhere(simulate: Simulate, make: str) -> None:
    simulate(
        f"""
        place = next_address() + 64 * MIB
        assert own(place)
        result, p = {make}(256 * MIB)
        assert result == 0
        assert not p <= place < p + 256 * MIB, (hex(p), hex(place))
        assert p > place - 64 * MIB  # it would have been there
        ok(cuda.cuCtxSynchronize())
        ctypes.memset(place, 7, 64)
        ok(cuda.cuMemcpyHtoD_v2(c_uint64(p), c_void_p(place), c_size_t(64)))
        ok(cuda.cuMemcpyDtoH_v2(c_void_p(place + 100), c_uint64(p), c_size_t(64)))
        assert ctypes.string_at(place + 100, 64) == bytes([7]) * 64
        """
    )


def test_no_way_to_allocate_gives_what_is_the_programs(simulate: Simulate) -> None:
    simulate("makers = [linear, pitched, stream_ordered]\n" + AROUND)


def test_what_the_program_maps_later_lies_elsewhere(simulate: Simulate) -> None:
    simulate(
        """
        result, p = linear(8 * MIB)
        assert result == 0
        assert not own(p) and not own(p + 8 * MIB - 4096) and not own(p + 4 * MIB, MIB)
        """
    )


def test_neighbours_in_one_chunk_are_claimed_page_by_page(simulate: Simulate) -> None:
    """The program can map the chunk's pages that are not device memory."""
    simulate(
        """
        first = next_address()
        assert first % (2 * MIB) == 0
        assert own(first + MIB, MIB)
        result, p = linear(64 << 10)
        assert result == 0 and p // (2 * MIB) == first // (2 * MIB), (hex(p), hex(first))
        ctypes.memset(first + MIB, 5, MIB)
        assert not own(p)
        """
    )


def test_when_nothing_is_free_the_device_is_out_of_memory(simulate: Simulate) -> None:
    simulate(
        """
        def free():
            free, total = c_size_t(), c_size_t()
            ok(cuda.cuMemGetInfo_v2(byref(free), byref(total)))
            return free.value
        first, before = next_address(), free()
        for i in range(40):
            assert own(first + i * 256 * MIB + 128 * MIB)
        result, p = linear(256 * MIB)
        assert (result, p) == (2, 0xdead)
        assert free() == before
        result, p = linear(64 * MIB)
        assert result == 0
        """
    )


def test_a_program_of_limited_address_space_allocates_all_the_same(simulate: Simulate) -> None:
    simulate(
        """
        with open("/proc/self/statm") as statm:
            used = int(statm.read().split()[0]) * 4096
        resource.setrlimit(resource.RLIMIT_AS, (used + 512 * MIB, -1))
        result, p = linear(4096 * MIB)
        assert result == 0
        ok(cuda.cuMemsetD8_v2(c_uint64(p), 3, c_size_t(100)))
        back = create_string_buffer(100)
        ok(cuda.cuMemcpyDtoH_v2(back, c_uint64(p), c_size_t(100)))
        assert back.raw == bytes([3]) * 100
        """
    )
