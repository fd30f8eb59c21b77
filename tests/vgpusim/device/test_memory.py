"""Device memory: placement, guard pages, accounting, ranges, registered host memory."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
from collections.abc import Iterator

import pytest

from .conftest import CONTEXT_NBYTES, DEVICE_NBYTES, IN_FILE, MIB, PRIVATE, Simulator, device_file, on_device

INVALID_VALUE, OUT_OF_MEMORY = 1, 2
ARENA_BASE = 0x200000000000


@pytest.fixture(params=[PRIVATE, IN_FILE], ids=["private", "file"])
def sim(library: ctypes.CDLL, request: pytest.FixtureRequest) -> Iterator[Simulator]:
    """Both kinds of device memory behave the same."""
    yield from on_device(library, request.param)


def size(n: int) -> ctypes.c_size_t:
    return ctypes.c_size_t(n)


def at(address: int) -> ctypes.c_uint64:
    return ctypes.c_uint64(address)


def is_accessible(address: int) -> bool:
    """Whether the page can be read and written, according to /proc/self/maps."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            low, high = (int(part, 16) for part in line.split()[0].split("-"))
            if low <= address < high:
                return line.split()[1].startswith("rw")
    return False


def mappings() -> int:
    """The number of mappings in the devices' address ranges."""
    with open("/proc/self/maps") as maps:
        lows = (int(line.split("-")[0], 16) for line in maps)
        return sum(ARENA_BASE <= low < ARENA_BASE + 16 * DEVICE_NBYTES for low in lows)


@pytest.mark.parametrize("nbytes", [1, 511, 513, 4096, 10000, 3 * MIB + 1])
def test_allocation_is_aligned_zeroed_and_guarded(sim: Simulator, nbytes: int) -> None:
    address = sim.alloc(nbytes)
    assert address % 512 == 0
    assert address > ARENA_BASE
    assert sim.read(address, nbytes) == bytes(nbytes)
    end = address + (nbytes + 511) // 512 * 512
    assert is_accessible(address)
    assert is_accessible(address + nbytes - 1)
    assert not is_accessible((end + 4095) // 4096 * 4096), "the page after an allocation is a guard"


def test_freed_memory_is_not_seen_again(sim: Simulator) -> None:
    address = sim.alloc(MIB)
    sim.write(address, b"\xa5" * MIB)
    sim.ok("cuMemFree_v2", at(address))
    assert not is_accessible(address)
    again = sim.alloc(MIB)
    assert again != address, "an address rests before it is used again"
    assert sim.read(again, MIB) == bytes(MIB)


def test_frees_are_checked(sim: Simulator) -> None:
    address = sim.alloc(4096)
    assert sim.cuMemFree_v2(at(address + 1)) == INVALID_VALUE
    assert sim.cuMemFree_v2(at(0x1234)) == INVALID_VALUE
    assert sim.cuMemFree_v2(at(0)) == 0
    assert sim.cuMemFree_v2(at(address)) == 0
    assert sim.cuMemFree_v2(at(address)) == INVALID_VALUE


def test_sizes_are_checked(sim: Simulator) -> None:
    out = ctypes.c_uint64(7)
    assert sim.cuMemAlloc_v2(ctypes.byref(out), size(0)) == INVALID_VALUE
    assert sim.cuMemAlloc_v2(None, size(16)) == INVALID_VALUE
    assert sim.cuMemAlloc_v2(ctypes.byref(out), size(1 << 50)) == OUT_OF_MEMORY
    assert sim.cuMemAlloc_v2(ctypes.byref(out), size((1 << 64) - 1)) == OUT_OF_MEMORY
    assert out.value == 7, "out-parameters are written only on success"


def test_memory_is_accounted_and_committed_lazily(sim: Simulator) -> None:
    before = sim.free_nbytes()
    assert before <= (80 << 30) - CONTEXT_NBYTES
    big = sim.alloc(60 << 30)  # more than the machine has: memory is committed on first touch
    assert sim.free_nbytes() == before - (60 << 30)
    sim.write(big + (59 << 30), b"far")
    assert sim.read(big + (59 << 30), 3) == b"far"
    out = ctypes.c_uint64()
    assert sim.cuMemAlloc_v2(ctypes.byref(out), size(30 << 30)) == OUT_OF_MEMORY
    sim.ok("cuMemFree_v2", at(big))
    assert sim.free_nbytes() == before


def test_next_fit_survives_a_walk_around_the_arena(sim: Simulator) -> None:
    keep = sim.alloc(100)
    sim.write(keep, b"kept")
    for _ in range(80):  # 80 x 20 GiB passes the reservation's end
        sim.ok("cuMemFree_v2", at(sim.alloc(20 << 30)))
    assert sim.read(keep, 4) == b"kept"


@pytest.mark.parametrize("live", [0, 16])
@pytest.mark.parametrize("nbytes", [64, MIB, 3 * MIB])
@pytest.mark.parametrize("pooled", [False, True])
def test_mappings_follow_from_what_is_live(sim: Simulator, nbytes: int, live: int, pooled: bool) -> None:
    """NR01: freed memory leaves no mapping behind; the kernel allows 65,530 mappings."""
    address, before, held = ctypes.c_uint64(), mappings(), []
    for i in range(300):
        if pooled:
            sim.ok("cuMemAllocAsync", ctypes.byref(address), size(nbytes), None)
        else:
            sim.ok("cuMemAlloc_v2", ctypes.byref(address), size(nbytes))
        sim.ok("cuMemsetD8_v2", address, i % 256, size(min(nbytes, 64)))
        held.append(address.value)
        if len(held) > live:  # in a changing order, so that holes come and go
            gone = at(held.pop(i * 7 % len(held)))
            sim.ok("cuMemFreeAsync", gone, None) if pooled else sim.ok("cuMemFree_v2", gone)
    sim.ok("cuCtxSynchronize")
    assert mappings() <= before + 2 * live + 1
    for each in held:
        sim.ok("cuMemFree_v2", at(each))
    assert mappings() <= before + 1


def test_a_hundred_thousand_cycles(sim: Simulator) -> None:
    """NR01: a session that allocates and frees all day."""
    address, before = ctypes.c_uint64(), sim.free_nbytes()
    out, nbytes = ctypes.byref(address), size(64)
    for _ in range(100_000):
        assert sim.lib.vgx_sim_cuMemAlloc_v2(out, nbytes) == 0
        assert sim.lib.vgx_sim_cuMemFree_v2(address) == 0
    assert sim.free_nbytes() == before


def test_a_file_is_believed_only_if_it_holds_the_device(sim: Simulator) -> None:
    unsized, unsealed, whole = device_file(DEVICE_NBYTES - 4096), device_file(seals=0), device_file()
    assert sim.device_file(1, unsized) == INVALID_VALUE
    assert sim.device_file(1, unsealed) == INVALID_VALUE
    assert sim.device_file(1, -1) == INVALID_VALUE
    assert sim.device_file(3, whole) == sim.device_file(-1, whole) == 101
    assert sim.device_file(IN_FILE, whole) == INVALID_VALUE, "it has one"
    if sim.device == PRIVATE:
        sim.alloc(4096)
        assert sim.device_file(PRIVATE, whole) == 600, "something is allocated"
    for file in (unsized, unsealed, whole):
        os.close(file)


def test_copies_check_ranges(sim: Simulator) -> None:
    address, host = sim.alloc(4096), ctypes.create_string_buffer(8192)
    assert sim.cuMemcpyHtoD_v2(at(address), host, size(0)) == 0
    assert sim.cuMemcpyHtoD_v2(at(address), None, size(16)) == INVALID_VALUE
    assert sim.cuMemcpyHtoD_v2(at(0), host, size(16)) == INVALID_VALUE
    assert sim.cuMemcpyHtoD_v2(at(address), host, size(8192)) == INVALID_VALUE
    assert sim.cuMemcpyDtoH_v2(host, at(address + 4090), size(16)) == INVALID_VALUE
    assert sim.cuMemcpyHtoD_v2(at(0x100), host, size(4)) == INVALID_VALUE
    assert sim.cuMemcpyHtoD_v2(at(address), host, size((1 << 64) - 1)) == INVALID_VALUE
    assert sim.cuMemcpyDtoD_v2(at(address), at(address + 8), size(64)) == 0
    assert sim.cuMemcpy(at(ctypes.addressof(host)), at(address), size(64)) == 0


def test_fills(sim: Simulator) -> None:
    address = sim.alloc(4096)
    assert sim.cuMemsetD8_v2(at(address), 1, size(4097)) == INVALID_VALUE
    assert sim.cuMemsetD32_v2(at(address + 1), 1, size(1)) == INVALID_VALUE
    assert sim.cuMemsetD32_v2(at(address), 1, size(0)) == 0
    assert sim.cuMemsetD2D8_v2(at(address), size(8), 0, size(16), size(2)) == INVALID_VALUE
    sim.ok("cuMemsetD8_v2", at(address), 7, size(4096))
    sim.ok("cuMemsetD16_v2", at(address), 0x0102, size(3))
    sim.ok("cuMemsetD32_v2", at(address + 8), 0x11223344, size(2))
    sim.ok("cuMemsetD2D32_v2", at(address + 64), size(32), 0x0A0B0C0D, size(2), size(3))
    data = sim.read(address, 4096)
    assert data[:6] == bytes.fromhex("020102010201")
    assert data[6:8] == b"\7\7"
    assert data[8:16] == bytes.fromhex("4433221144332211")
    for row in range(3):
        assert data[64 + 32 * row : 72 + 32 * row] == bytes.fromhex("0d0c0b0a0d0c0b0a")
        assert data[72 + 32 * row : 96 + 32 * row] == b"\7" * 24
    assert data[160:] == b"\7" * (4096 - 160)


class Copy2D(ctypes.Structure):
    _fields_ = [
        (f"{side}{name}", kind)
        for side in ("src", "dst")
        for name, kind in (
            ("X", ctypes.c_size_t),
            ("Y", ctypes.c_size_t),
            ("Type", ctypes.c_int),
            ("Host", ctypes.c_void_p),
            ("Device", ctypes.c_uint64),
            ("Array", ctypes.c_void_p),
            ("Pitch", ctypes.c_size_t),
        )
    ] + [("width", ctypes.c_size_t), ("height", ctypes.c_size_t)]


def test_copy_of_a_rectangle(sim: Simulator) -> None:
    address, pitch = ctypes.c_uint64(), ctypes.c_size_t()
    sim.ok("cuMemAllocPitch_v2", ctypes.byref(address), ctypes.byref(pitch), size(100), size(10), 4)
    assert pitch.value == 512
    assert sim.cuMemAllocPitch_v2(ctypes.byref(address), ctypes.byref(pitch), size(100), size(10), 3) == INVALID_VALUE
    source = bytes(range(200))
    host = ctypes.create_string_buffer(source, len(source))
    copy = Copy2D(
        srcType=1,
        srcHost=ctypes.addressof(host),
        srcPitch=20,
        srcX=2,
        srcY=1,
        dstType=2,
        dstDevice=address.value,
        dstPitch=512,
        dstX=4,
        dstY=3,
        width=10,
        height=5,
    )
    sim.ok("cuMemcpy2D_v2", ctypes.byref(copy))
    for row in range(5):
        start = 20 * (1 + row) + 2
        assert sim.read(address.value + 512 * (3 + row), 15) == bytes(4) + source[start : start + 10] + b"\0"
    copy.height = 8
    assert sim.cuMemcpy2D_v2(ctypes.byref(copy)) == INVALID_VALUE, "the last row is past the end"
    copy.height, copy.srcPitch = 5, 8
    assert sim.cuMemcpy2D_v2(ctypes.byref(copy)) == INVALID_VALUE, "a pitch below the width"
    copy.srcPitch, copy.srcType = 20, 3
    assert sim.cuMemcpy2D_v2(ctypes.byref(copy)) == 400, "an array that is none"


def test_registered_memory(sim: Simulator) -> None:
    memory = mmap.mmap(-1, 1 << 16)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    pointer, out = ctypes.c_void_p(start), ctypes.c_uint64()
    assert sim.cuMemHostGetDevicePointer_v2(ctypes.byref(out), pointer, 0) == INVALID_VALUE
    assert sim.cuMemHostRegister_v2(pointer, size(1 << 16), 0) == 0
    assert sim.cuMemHostRegister_v2(pointer, size(1 << 16), 0) == 712
    assert sim.cuMemHostRegister_v2(ctypes.c_void_p(start + 4096), size(16), 0) == 712
    assert sim.cuMemHostGetDevicePointer_v2(ctypes.byref(out), pointer, 0) == 0
    assert out.value == start
    sim.ok("cuMemsetD8_v2", at(start + 10), 0x5A, size(4))  # device-accessible
    assert memory[9:15] == b"\0ZZZZ\0"
    assert sim.cuMemHostUnregister(pointer) == 0
    assert sim.cuMemHostUnregister(pointer) == 713
    assert sim.cuMemHostRegister_v2(ctypes.c_void_p(16), size(4096), 0) == INVALID_VALUE


def test_pointer_attributes(sim: Simulator) -> None:
    address, kind, start, length = sim.alloc(10000), ctypes.c_uint32(), ctypes.c_uint64(), ctypes.c_size_t()
    assert sim.cuPointerGetAttribute(ctypes.byref(kind), 2, at(address + 5)) == 0
    assert kind.value == 2
    assert sim.cuPointerGetAttribute(ctypes.byref(start), 11, at(address + 100)) == 0
    assert start.value == address
    assert sim.cuPointerGetAttribute(ctypes.byref(length), 12, at(address + 100)) == 0
    assert length.value == 10000
    assert sim.cuPointerGetAttribute(ctypes.byref(kind), 2, at(ctypes.addressof(kind))) == INVALID_VALUE


@pytest.mark.parametrize("name", ["cuMemFreeAsync", "cuMemFree_v2"])
def test_freeing_without_host_memory_frees_nothing(sim: Simulator, name: str) -> None:
    """`make faults` found that cuMemFreeAsync submitted an operation whose allocation had failed (its calloc:11)."""
    address = ctypes.c_uint64(sim.alloc(1 << 20))
    before = sim.free_nbytes()
    assert sim.lib.vgt_call_without_calloc(getattr(sim, name), address, None) == OUT_OF_MEMORY
    assert sim.free_nbytes() == before
    sim.ok("cuMemFree_v2", address)


def test_pool_counts_and_frees_in_stream_order(sim: Simulator) -> None:
    pool, used, address = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint64()
    sim.ok("cuDeviceGetDefaultMemPool", ctypes.byref(pool), sim.device)
    before = sim.free_nbytes()
    sim.ok("cuMemAllocAsync", ctypes.byref(address), size(1 << 20), None)
    sim.ok("cuMemPoolGetAttribute", pool, 7, ctypes.byref(used))
    assert used.value == 1 << 20
    assert sim.free_nbytes() == before - (1 << 20)
    sim.ok("cuMemFreeAsync", address, None)
    assert sim.cuMemFreeAsync(address, None) == INVALID_VALUE
    sim.ok("cuStreamSynchronize", None)
    sim.ok("cuMemPoolGetAttribute", pool, 7, ctypes.byref(used))
    assert used.value == 0
    assert sim.free_nbytes() == before


@pytest.mark.control("AT17")
def test_AT17_sessions_do_not_allocate_where_others_did(sim: Simulator) -> None:
    """A session does not allocate at addresses of an earlier session. The control has one epoch for all sessions."""

    def first_addresses(epoch: int) -> set[int]:
        sim.set_epoch(epoch)
        made = [sim.alloc(nbytes) for nbytes in (64, 4096, MIB, 3 * MIB)]
        for address in made:
            sim.ok("cuMemFree_v2", at(address))
        return set(made)

    assert first_addresses(0) == first_addresses(0)
    starts = {epoch: min(first_addresses(epoch)) for epoch in (*range(1, 200), 0x7FFF, 0x8000, 0xFFFF)}
    ordered = sorted(starts.values())
    assert min(b - a for a, b in itertools.pairwise(ordered)) >= 8 * MIB
    assert abs(starts[2] - starts[1]) >= DEVICE_NBYTES >> 4  # consecutive epochs start farthest apart
    assert max(ordered) < ARENA_BASE + (sim.device + 1) * DEVICE_NBYTES - DEVICE_NBYTES // 4
