"""Virtual memory management on the simulator; device memory is a file of the client, or private to the worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.running import Running
from tests.shim.client import run

TOOLS = """
GRANULE = 2 << 20
prop = ctypes.create_string_buffer(32)
prop[0] = prop[8] = 1  # pinned memory of a device: 0

def access(flags, device=0):
    return (c_int * 3)(1, device, flags)

def reserve(granules):
    p = c_uint64()
    ok(cuda.cuMemAddressReserve(byref(p), c_size_t(granules * GRANULE), c_size_t(0), c_uint64(0), c_uint64(0)))
    return p.value

def create(granules=1):
    handle = c_uint64()
    ok(cuda.cuMemCreate(byref(handle), c_size_t(granules * GRANULE), prop, c_uint64(0)))
    return handle

def map(address, handle, granules=1, offset=0):
    return cuda.cuMemMap(c_uint64(address), c_size_t(granules * GRANULE), c_size_t(offset), handle, c_uint64(0))

def allow(address, granules=1, flags=3, device=0):
    nbytes = c_size_t(granules * GRANULE)
    return cuda.cuMemSetAccess(c_uint64(address), nbytes, access(flags, device), c_size_t(1))

def unmap(address, granules=1):
    return cuda.cuMemUnmap(c_uint64(address), c_size_t(granules * GRANULE))

def free(address, granules):
    return cuda.cuMemAddressFree(c_uint64(address), c_size_t(granules * GRANULE))

def put(address, data):
    return cuda.cuMemcpyHtoD_v2(c_uint64(address), data, c_size_t(len(data)))

def look(address, nbytes):
    data = create_string_buffer(nbytes)
    ok(cuda.cuMemcpyDtoH_v2(data, c_uint64(address), c_size_t(nbytes)))
    return data.raw

def sees(address):
    return cuda.cuMemcpyDtoH_v2(create_string_buffer(1), c_uint64(address), c_size_t(1))

def free_nbytes():
    free, total = c_size_t(), c_size_t()
    ok(cuda.cuMemGetInfo_v2(byref(free), byref(total)))
    return free.value

context()
"""


@pytest.fixture(scope="module", params=["true", "false"], ids=["file", "private"])
def endpoint(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[str]:
    directory: Path = tmp_path_factory.mktemp("virtual")
    config = directory / "vgpud.toml"
    config.write_text(
        f"listen = ['unix:{directory}/s']\ngpus = 'h100:2'\nadmin = ''\ncache_dir = '{directory}'\n"
        f"shared_memory = {request.param}\n"
    )
    running = Running.start(config, directory, "log")
    running.wait_ready()
    yield f"unix:{directory}/s"
    running.end()


def test_devices_offer_it(endpoint: str) -> None:
    run(
        endpoint,
        TOOLS
        + """
value, granularity = c_int(), c_size_t()
ok(cuda.cuDeviceGetAttribute(byref(value), 102, 0))
assert value.value == 1
ok(cuda.cuMemGetAllocationGranularity(byref(granularity), prop, 0))
assert granularity.value == GRANULE
# NCCL asks for the host's before it tries to allocate there, and takes an error for an answer.
host = create_string_buffer(prop.raw)
host[8] = 3  # CU_MEM_LOCATION_TYPE_HOST_NUMA
granularity.value = 0
ok(cuda.cuMemGetAllocationGranularity(byref(granularity), host, 0))
assert granularity.value == GRANULE
handle = c_uint64()
assert cuda.cuMemCreate(byref(handle), c_size_t(GRANULE), host, c_uint64(0)) == 801
""",
    )


def test_one_memory_at_two_addresses(endpoint: str) -> None:
    run(
        endpoint,
        TOOLS
        + """
before = free_nbytes()  # of a device whose memory no other test uses: an earlier one's session may end at any time
range, handle = reserve(4), create(2)
assert free_nbytes() == before - 2 * GRANULE
ok(map(range, handle, 2))
ok(map(range + 2 * GRANULE, handle, 2))
assert sees(range) == 1  # no access
ok(allow(range, 4))
assert look(range, 100) == bytes(100)
ok(put(range + 5, b"at both"))
assert look(range + 2 * GRANULE + 5, 7) == b"at both"
ok(cuda.cuMemsetD8_v2(c_uint64(range + 4 * GRANULE - 3), 9, c_size_t(3)))
assert look(range + 2 * GRANULE - 3, 3) == bytes([9]) * 3
assert look(range + 2 * GRANULE - 3, 6) == bytes([9]) * 3 + look(range, 3)  # neighbours are one to a copy
ok(cuda.cuMemRelease(handle))  # what maps it keeps it
assert look(range + 5, 7) == b"at both"
ok(unmap(range, 2))
assert free_nbytes() == before - 2 * GRANULE
assert sees(range) == 1
ok(unmap(range + 2 * GRANULE, 2))
assert free_nbytes() == before
ok(free(range, 4))
""",
        CUDA_VISIBLE_DEVICES="1",
    )


def test_memory_grows_in_place_as_allocators_do(endpoint: str) -> None:
    run(
        endpoint,
        TOOLS
        + """
range, handles = reserve(512), []
for i in __builtins__.range(40):
    handles.append(create())
    ok(map(range + i * GRANULE, handles[-1]))
    ok(allow(range + i * GRANULE))
    ok(put(range + i * GRANULE, bytes([i]) * 16))
for i in __builtins__.range(40):
    assert look(range + i * GRANULE, 16) == bytes([i]) * 16
ok(unmap(range + 10 * GRANULE, 5))  # several at once
assert look(range + 9 * GRANULE, 1) == bytes([9]) and sees(range + 12 * GRANULE) == 1
for handle in handles:
    ok(cuda.cuMemRelease(handle))
fresh = create(5)
ok(map(range + 10 * GRANULE, fresh, 5))
ok(allow(range + 10 * GRANULE, 5))
assert look(range + 12 * GRANULE, 64) == bytes(64)
""",
    )


def test_access_is_what_was_set(endpoint: str) -> None:
    run(
        endpoint,
        TOOLS
        + """
range, handle, flags = reserve(1), create(), c_uint64()
location = (c_int * 2)(1, 0)
ok(map(range, handle))
for wanted in (0, 1, 3, 1, 0):
    ok(allow(range, flags=wanted))
    ok(cuda.cuMemGetAccess(byref(flags), location, c_uint64(range + 77)))
    assert flags.value == wanted
assert cuda.cuMemGetAccess(byref(flags), location, c_uint64(range + GRANULE)) == 1
ok(allow(range, device=1))  # a peer's is its own
ok(cuda.cuMemGetAccess(byref(flags), location, c_uint64(range)))
assert flags.value == 0
ok(cuda.cuMemGetAccess(byref(flags), (c_int * 2)(1, 1), c_uint64(range)))
assert flags.value == 3
assert allow(range, device=2) == 101 and allow(range, flags=2) == 1
""",
    )


def test_wrong_use_is_refused(endpoint: str) -> None:
    run(
        endpoint,
        TOOLS
        + """
range, handle, p = reserve(4), create(2), c_uint64(7)
linear = alloc(4 * GRANULE)
for size, alignment, flags in ((0, 0, 0), (GRANULE + 4096, 0, 0), (GRANULE, 3, 0), (GRANULE, 0, 1), (1 << 62, 0, 0)):
    result = cuda.cuMemAddressReserve(byref(p), c_size_t(size), c_size_t(alignment), c_uint64(0), c_uint64(flags))
    assert result in (1, 2) and p.value == 7, (size, result)
for alignment in (4096, GRANULE, 32 * GRANULE):
    ok(cuda.cuMemAddressReserve(byref(p), c_size_t(GRANULE), c_size_t(alignment), c_uint64(0), c_uint64(0)))
    assert p.value % max(alignment, GRANULE) == 0
    ok(cuda.cuMemAddressFree(p, c_size_t(GRANULE)))
for size in (0, 4096, GRANULE + 1):
    assert cuda.cuMemCreate(byref(p), c_size_t(size), prop, c_uint64(0)) == 1
assert cuda.cuMemCreate(byref(p), c_size_t(1 << 40), prop, c_uint64(0)) == 2
assert map(range + 4096, handle) == 1 and map(range, handle, 3) == 1 and map(range, handle, 2, 4096) == 1
assert map(range + 3 * GRANULE, handle, 2) == 1  # beyond the reservation
assert map(linear.value & -GRANULE, handle) == 1 and map(0, handle) == 1 and map(-GRANULE % 2**64, handle) == 1
ok(map(range + GRANULE, handle, 2))
assert map(range, handle, 2) == 1 and map(range + 2 * GRANULE, handle) == 1  # taken
assert allow(range) == 1 and allow(range + GRANULE, 3) == 1
assert unmap(range + GRANULE) == 1 and unmap(range, 3) == 1 and unmap(linear.value) == 1
assert free(range, 4) == 1  # mapped
ok(allow(range + GRANULE, 2))
assert cuda.cuMemFree_v2(c_uint64(range)) == cuda.cuMemFree_v2(c_uint64(range + GRANULE)) == 1
assert cuda.cuMemFreeAsync(c_uint64(range + GRANULE), None) == 1
ok(unmap(range + GRANULE, 2))
assert free(range + GRANULE, 3) == 1
ok(free(range, 4))
assert free(range, 4) == 1
ok(cuda.cuMemRelease(handle))
assert cuda.cuMemRelease(handle) == 1
ok(put(linear.value, b"the session goes on"))
""",
    )


def test_reservations_without_end_are_refused(endpoint: str) -> None:
    """They cost no device memory, but the worker keeps a list of them."""
    run(
        endpoint,
        TOOLS
        + """
before = free_nbytes()
p, size, zero, zeros = c_uint64(), c_size_t(GRANULE), c_size_t(0), c_uint64(0)
taken = []
while (result := cuda.cuMemAddressReserve(byref(p), size, zero, zeros, zeros)) == 0:
    taken.append(p.value)
    assert len(taken) <= 16384
assert result == 2, "of that call alone"
assert free_nbytes() == before and len(taken) > 15000
assert cuda.cuMemAddressReserve(byref(p), size, zero, zeros, zeros) == 2
assert p.value == taken[-1]
handle, other = create(), alloc(64)  # what has memory is counted by it
ok(map(taken[10000], handle))
ok(allow(taken[10000]))
ok(put(taken[10000], b"there"))
assert look(taken[10000], 5) == b"there"
ok(free(taken[7], 1))
taken[7] = reserve(1)
assert cuda.cuMemAddressReserve(byref(p), size, zero, zeros, zeros) == 2
""",
        CUDA_VISIBLE_DEVICES="1",
    )


def test_memory_of_a_pool_is_on_the_pools_device(endpoint: str) -> None:
    """Whatever the device of the context is."""
    run(
        endpoint,
        TOOLS
        + """
mine, other, second, p, ordinal, stream = c_void_p(), c_void_p(), c_void_p(), c_uint64(), c_int(), c_void_p()
ok(cuda.cuCtxGetCurrent(byref(mine)))
ok(cuda.cuDevicePrimaryCtxRetain(byref(second), 1))
ok(cuda.cuCtxSetCurrent(second))
ok(cuda.cuStreamCreate(byref(stream), 1))
ok(cuda.cuCtxSetCurrent(mine))

def device_of(address, middle=0):
    ok(cuda.cuPointerGetAttribute(byref(ordinal), 9, c_uint64(address.value + middle)))
    many, kind = (c_void_p * 1)(ctypes.addressof(ordinal)), (c_int * 1)(9)
    found = ordinal.value
    ordinal.value = -5
    ok(cuda.cuPointerGetAttributes(1, kind, many, c_uint64(address.value)))
    assert ordinal.value == found
    return found

for device in (1, 0):
    ok(cuda.cuDeviceGetDefaultMemPool(byref(other), device))
    ok(cuda.cuMemAllocFromPoolAsync(byref(p), c_size_t(4096), other, None))
    assert device_of(p) == device_of(p, 4095) == device
ok(cuda.cuMemAllocAsync(byref(p), c_size_t(4096), stream))
assert device_of(p) == 1, "the stream's"
assert device_of(alloc(64)) == 0
""",
    )
