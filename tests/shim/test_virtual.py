"""Handles of physical memory, reference-counted in the client: the program's references, mappings, and when the memory
is released."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shim.client import run
from tests.shim.fake_daemon import FakeDaemon, Fields

PROGRAM = """
context()
PIECE = 2 << 20
ADDRESS = 0x7f0000000000
prop = ctypes.create_string_buffer(32)
prop[0] = prop[8] = 1  # pinned memory of a device: 0

def create():
    handle = c_uint64()
    ok(cuda.cuMemCreate(byref(handle), c_size_t(PIECE), prop, c_uint64(0)))
    return handle.value

def map(address, handle):
    return cuda.cuMemMap(c_uint64(address), c_size_t(PIECE), c_size_t(0), c_uint64(handle), c_uint64(0))

def unmap(address, pieces=1):
    return cuda.cuMemUnmap(c_uint64(address), c_size_t(PIECE * pieces))

def retain(address):
    handle = c_uint64(7)
    return cuda.cuMemRetainAllocationHandle(byref(handle), c_void_p(address)), handle.value

def release(handle):
    return cuda.cuMemRelease(c_uint64(handle))

def properties(handle):
    found = ctypes.create_string_buffer(32)
    return cuda.cuMemGetAllocationPropertiesFromHandle(found, c_uint64(handle)), found.raw == prop.raw
"""


@pytest.fixture
def calls(tmp_path: Path):
    """`calls(program)` runs PROGRAM and the text; returns the printed lines and the calls that the worker received."""

    def call(program: str) -> tuple[list[str], list[str]]:
        def succeed(_fields: Fields, _parts: list[bytes]) -> tuple[int, Fields, bytes]:
            return 0, {}, b""

        names = ("cuMemCreate", "cuMemMap", "cuMemUnmap", "cuMemRelease", "cuDevicePrimaryCtxRetain")
        with FakeDaemon(tmp_path / "s", **dict.fromkeys(names, succeed)) as daemon:
            printed = run(daemon.url, PROGRAM + program).split("\n")[:-1]
            return printed, [name for name in daemon.names() if name in names[:-1]]

    return call


def test_a_handle_is_retained_by_an_address_as_nccl_does(calls):
    printed, seen = calls("""
handle = create()
ok(map(ADDRESS, handle))
print(retain(ADDRESS + 12345) == (0, handle))
print(release(handle), properties(handle))  # one is left
print(unmap(ADDRESS), release(handle), release(handle), properties(handle)[0], retain(ADDRESS))
""")
    assert printed == ["True", "0 (0, True)", "0 0 1 1 (1, 7)"]
    assert seen == ["cuMemCreate", "cuMemMap", "cuMemUnmap", "cuMemRelease"]


def test_a_mapping_leads_to_its_handle_after_the_release(calls):
    printed, seen = calls("""
handle = create()
ok(map(ADDRESS, handle)); ok(map(ADDRESS + PIECE, handle))
print(release(handle), release(handle), properties(handle)[0], map(ADDRESS + 2 * PIECE, handle))
print(retain(ADDRESS + PIECE) == (0, handle), properties(handle), release(handle))
print(unmap(ADDRESS, 2), retain(ADDRESS)[0])
""")
    assert printed == ["0 1 1 1", "True (0, True) 0", "0 1"]
    assert seen == ["cuMemCreate", "cuMemMap", "cuMemMap", "cuMemUnmap", "cuMemRelease"]  # at the last unmap


def test_unmapped_memory_is_released_at_once(calls):
    printed, seen = calls("""
first, second = create(), create()
print(release(first), release(second), first != second)
""")
    assert printed == ["0 0 True"]
    assert seen == ["cuMemCreate", "cuMemCreate", "cuMemRelease", "cuMemRelease"]


def test_what_is_not_mapped_memory_has_no_handle(calls):
    printed, _ = calls("""
handle = create()
ok(map(ADDRESS, handle))
print(retain(0), retain(ADDRESS - 1), retain(ADDRESS + PIECE), retain(id(prop)))
print(cuda.cuMemRetainAllocationHandle(None, c_void_p(ADDRESS)), release(0), release(ADDRESS), release(handle + 1))
print(cuda.cuMemFree_v2(c_uint64(ADDRESS)), cuda.cuMemExportToShareableHandle(None, c_uint64(handle), 1, c_uint64(0)))
print(cuda.cuIpcGetMemHandle(create_string_buffer(64), c_uint64(ADDRESS)))
""")
    assert printed == ["(1, 7) (1, 7) (1, 7) (1, 7)", "1 1 1 1", "1 1", "1"]
