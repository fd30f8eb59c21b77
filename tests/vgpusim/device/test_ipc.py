"""Allocations in files: moved into a file on export, mapped by the opener; handles and files are never trusted."""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
from collections.abc import Iterator

import pytest

from .conftest import DEVICE_NBYTES, IN_FILE, MIB, PRIVATE, Simulator, on_device
from .test_memory import at, is_accessible, size

INVALID_VALUE, OUT_OF_MEMORY, MAP_FAILED = 1, 2, 205
LAZY = 1
F_ADD_SEALS, SHRINK, ALL = 1033, 2, 7


class Object(ctypes.Structure):
    """struct vgx_ipc_object."""

    _fields_ = (("handle", ctypes.c_ubyte * 64), ("fd", ctypes.c_int))

    def changed(
        self, fd: int | None = None, nbytes: int | None = None, device: int | None = None, offset: int | None = None
    ) -> Object:
        key, *old = struct.unpack_from("<16sQIxxxxQ", bytes(self.handle))
        values = (was if new is None else new for was, new in zip(old, (nbytes, device, offset), strict=True))
        handle = struct.pack("<16sQIxxxxQ", key, *values).ljust(64, b"\0")
        return Object((ctypes.c_ubyte * 64).from_buffer_copy(handle), self.fd if fd is None else fd)


@pytest.fixture(params=[PRIVATE, IN_FILE], ids=["private", "file"])
def sim(library: ctypes.CDLL, request: pytest.FixtureRequest) -> Iterator[Simulator]:
    """Private memory moves into a file when it is exported; a device's file is shared unchanged."""
    yield from on_device(library, request.param)


def export(sim: Simulator, address: int) -> Object:
    made = Object(fd=-1)
    sim.ok("ipc_export", ctypes.byref(made), at(address))
    return made


def opened(sim: Simulator, what: Object, flags: int = LAZY) -> tuple[int, int]:
    address = ctypes.c_uint64(7)
    return sim.ipc_open(ctypes.byref(address), ctypes.byref(what), flags), address.value


@pytest.fixture
def shared(sim: Simulator) -> Iterator[tuple[int, Object]]:
    """An allocation of 10,000 bytes, exported."""
    address = sim.alloc(10_000)
    sim.write(address, bytes(range(250)) * 40)
    made = export(sim, address)
    yield address, made
    os.close(made.fd)


@pytest.mark.parametrize("nbytes", [1, 512, 4096, 10_000, 3 * MIB + 1])
def test_what_was_there_stays_and_writes_are_seen_on_both_sides(sim: Simulator, nbytes: int) -> None:
    address = sim.alloc(nbytes)
    data = os.urandom(nbytes)
    sim.write(address, data)
    free = sim.free_nbytes()
    made = export(sim, address)
    assert sim.read(address, nbytes) == data
    code, other = opened(sim, made)  # as in a second process: another address for the same memory
    assert code == 0
    assert other != address
    assert (other - address) % 512 == 0
    assert sim.read(other, nbytes) == data
    sim.write(other, b"\1")
    sim.write(address + nbytes - 1, b"\2")
    assert sim.read(address, nbytes) == sim.read(other, nbytes)
    assert sim.free_nbytes() == free  # the opened mapping costs no memory
    assert not is_accessible(other + (nbytes + 4095) // 4096 * 4096)
    sim.ok("cuMemFree_v2", at(address))
    held = b"\1" if nbytes > 1 else b"\2"
    assert sim.read(other, 1) == (held if sim.device == PRIVATE else b"\0"), "undefined, and no fault"
    sim.ok("cuIpcCloseMemHandle", at(other))
    assert not is_accessible(other)
    os.close(made.fd)


def test_memory_that_was_never_written_costs_no_file(sim: Simulator) -> None:
    address = sim.alloc(256 * MIB)
    sim.write(address + 100 * MIB, b"x")
    made = export(sim, address)
    assert os.fstat(made.fd).st_size == (256 * MIB if sim.device == PRIVATE else DEVICE_NBYTES)
    assert os.fstat(made.fd).st_blocks * 512 <= 4 * MIB
    assert sim.read(address + 100 * MIB, 2) == b"x\0"
    with pytest.raises(PermissionError):
        os.ftruncate(made.fd, 0)
    os.close(made.fd)


def test_opened_twice_is_one_address_that_is_closed_twice(sim: Simulator, shared: tuple[int, Object]) -> None:
    _, made = shared
    code, other = opened(sim, made)
    assert code == 0
    assert opened(sim, made) == (0, other)
    sim.ok("cuIpcCloseMemHandle", at(other))
    assert sim.read(other, 250) == bytes(range(250))
    sim.ok("cuIpcCloseMemHandle", at(other))
    assert sim.cuIpcCloseMemHandle(at(other)) == INVALID_VALUE


def test_another_processs_memory_is_neither_freed_nor_exported(sim: Simulator, shared: tuple[int, Object]) -> None:
    address, made = shared
    _, other = opened(sim, made)
    assert sim.cuMemFree_v2(at(other)) == INVALID_VALUE
    assert sim.cuMemFreeAsync(at(other), None) == INVALID_VALUE
    assert sim.ipc_export(ctypes.byref(Object()), at(other)) == INVALID_VALUE
    assert sim.cuIpcCloseMemHandle(at(address)) == INVALID_VALUE
    sim.ok("cuIpcCloseMemHandle", at(other))


def test_a_context_closes_what_it_opened(sim: Simulator, shared: tuple[int, Object]) -> None:
    _, made = shared
    mine, second = ctypes.c_void_p(), ctypes.c_void_p()
    sim.ok("cuCtxGetCurrent", ctypes.byref(mine))
    sim.ok("cuCtxCreate_v2", ctypes.byref(second), 0, sim.device)
    free = sim.free_nbytes()
    code, other = opened(sim, made)
    assert code == 0
    assert sim.free_nbytes() == free
    sim.ok("cuCtxDestroy_v2", second)
    sim.ok("cuCtxSetCurrent", mine)
    assert not is_accessible(other)


def test_only_what_was_allocated_is_exported(sim: Simulator) -> None:
    address, none = sim.alloc(4096), Object(fd=-1)
    pool = ctypes.c_uint64()
    sim.ok("cuMemAllocAsync", ctypes.byref(pool), size(4096), None)
    for wrong in (address + 1, address + 4096, 0, 0x1000, pool.value, 2**64 - 1):
        assert sim.ipc_export(ctypes.byref(none), at(wrong)) == INVALID_VALUE
    assert none.fd == -1
    sim.ok("cuMemFreeAsync", at(pool.value), None)


def test_an_opener_believes_neither_handle_nor_file(sim: Simulator, shared: tuple[int, Object]) -> None:
    _, made = shared
    unsealed, short = (os.memfd_create("x", os.MFD_ALLOW_SEALING) for _ in range(2))
    os.ftruncate(unsealed, 3 * 4096)
    os.ftruncate(short, 4096)
    fcntl.fcntl(short, F_ADD_SEALS, SHRINK)
    pipe, other_end = os.pipe()
    for fd in (unsealed, short, pipe, -1):
        assert opened(sim, made.changed(fd=fd)) == (MAP_FAILED, 7)
    for nbytes in (0, 80 * 1024 * MIB + 1, 2**63, 2**64 - 1):
        assert opened(sim, made.changed(nbytes=nbytes)) == (INVALID_VALUE, 7)
    for nbytes in (4 * 4096, 8 * MIB):  # more than the file holds
        if sim.device == PRIVATE:
            assert opened(sim, made.changed(nbytes=nbytes)) == (MAP_FAILED, 7)
    size_of_file = os.fstat(made.fd).st_size
    for offset in (1, size_of_file - 4096, size_of_file, 2**63, 2**64 - 4096):
        assert opened(sim, made.changed(offset=offset)) == (INVALID_VALUE, 7)
    code, peer = opened(sim, made.changed(device=1))  # another device's memory, at an address of that device
    assert code == 0
    sim.ok("cuIpcCloseMemHandle", at(peer))
    assert opened(sim, made.changed(device=9)) == opened(sim, made.changed(device=2**32 - 1)) == (INVALID_VALUE, 7)
    assert opened(sim, made, 0) == opened(sim, made, 3) == (INVALID_VALUE, 7)
    for fd in (unsealed, short, pipe, other_end):
        os.close(fd)
