"""A share's memory limit holds for each way of allocating: an allocation that fits succeeds, one that does not fit
returns error 2, and freed memory no longer counts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.daemon.running import Running, vgpud_with_real_workers, wait_until
from tests.shim.client import run

LIMIT_MIB = 4096
SHARES = f"default_share = 's'\n[[shares]]\nname = 's'\nmemory_mib = {LIMIT_MIB}\n"
COMMON = """
MIB = 1 << 20
ctx = context()
def free():
    left, total = c_size_t(), c_size_t()
    ok(cuda.cuMemGetInfo_v2(byref(left), byref(total)))
    assert total.value == LIMIT_MIB * MIB
    return left.value

class Props(ctypes.Structure):
    _fields_ = [("type", c_int), ("handles", c_int), ("location", c_int), ("device", c_int), ("rest", c_uint64 * 8)]

class Array(ctypes.Structure):
    _fields_ = [("width", c_size_t), ("height", c_size_t), ("depth", c_size_t), ("format", c_int), ("channels", c_uint),
                ("flags", c_uint)]

def array(nbytes):
    # Rows of 256 KiB: a card's mipmapped array has at most 32768 of them.
    return Array(16384, nbytes >> 18, 0, 32, 4, 0)  # four floats an element

IMAGE = b".version 7.0\\n.target sm_70\\n.address_size 64\\n.visible .global .align 8 .b8 v[%d];\\0"
streams = new(cuda.cuStreamCreate, 1)
pool = c_void_p()
ok(cuda.cuDeviceGetDefaultMemPool(byref(pool), 0))

def alloc_async(nbytes):
    p = c_uint64()
    result = cuda.cuMemAllocAsync(byref(p), c_size_t(nbytes), streams)
    return result, p

def free_async(p):
    ok(cuda.cuMemFreeAsync(p, streams))
    ok(cuda.cuStreamSynchronize(streams))
    ok(cuda.cuMemPoolTrimTo(pool, c_size_t(0)))

def made(function, *arguments):
    handle = c_uint64()
    return function(byref(handle), *arguments), handle

def context_of_its_own(_nbytes):
    return made(cuda.cuCtxCreate_v2, 0, 0)

PATHS = {
    "cuMemAlloc": (lambda n: made(cuda.cuMemAlloc_v2, c_size_t(n)), cuda.cuMemFree_v2),
    "cuMemAllocPitch": (
        lambda n: made(cuda.cuMemAllocPitch_v2, byref(c_size_t()), c_size_t(1 << 16), c_size_t(n >> 16), 4),
        cuda.cuMemFree_v2,
    ),
    "cuMemAllocAsync": (alloc_async, free_async),
    "cuMemCreate": (
        lambda n: made(cuda.cuMemCreate, c_size_t(n), byref(Props(1, 0, 1, 0)), c_uint64(0)), cuda.cuMemRelease
    ),
    "cuArrayCreate": (lambda n: made(cuda.cuArray3DCreate_v2, byref(array(n))), cuda.cuArrayDestroy),
    "cuMipmappedArrayCreate": (
        lambda n: made(cuda.cuMipmappedArrayCreate, byref(array(n)), 1), cuda.cuMipmappedArrayDestroy
    ),
    "cuModuleLoadData": (lambda n: made(cuda.cuModuleLoadData, IMAGE % n), cuda.cuModuleUnload),
}
"""
PATHS = (
    "cuMemAlloc",
    "cuMemAllocPitch",
    "cuMemAllocAsync",
    "cuMemCreate",
    "cuArrayCreate",
    "cuMipmappedArrayCreate",
    "cuModuleLoadData",
)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    yield from vgpud_with_real_workers(tmp_path_factory.mktemp("quota"), SHARES)


def run_alone(running: Running, program: str) -> None:
    """Wait until the tenant has no session, then run a program."""
    wait_until(lambda: running.admin.get("sessions")["sessions"] == [])
    run(str(running.endpoint), f"LIMIT_MIB = {LIMIT_MIB}\n{COMMON}{program}", timeout_s=120)


@pytest.mark.parametrize("path", PATHS)
def test_every_way_of_allocating_is_counted(running: Running, path: str) -> None:
    run_alone(
        running,
        f"""
allocate, release = PATHS[{path!r}]
before = free()
result, one = allocate(1024 * MIB)
ok(result)
used = before - free()
assert 1024 * MIB <= used <= 1026 * MIB, used
result, more = allocate((before - 512 * MIB) // (2 * MIB) * (2 * MIB))
assert result == 2, (result, "over the share")
assert free() == before - used, "a refusal costs nothing"
release(one)
kept = before - free()
assert 0 <= kept <= (2 * MIB if {path!r} == "cuModuleLoadData" else 0), kept  # a card's driver keeps 2 MiB of a module
result, most = allocate(before // (32 * MIB) * (32 * MIB) - 32 * MIB)  # a card's pool reserves 32 MiB at once
ok(result)
assert free() < 64 * MIB
""",
    )


def test_managed_memory_is_the_clients_own(running: Running) -> None:
    """As on a card: managed memory is on the device only while a kernel uses it; limits.host_memory_mib bounds it."""
    program = """
result, p = made(cuda.cuMemAllocManaged, c_size_t(64 * MIB), 1)
ok(result)
assert before == free()
"""
    run_alone(running, f"before = free()\n{program}")


def test_contexts_are_counted(running: Running) -> None:
    run_alone(
        running,
        """
before = free()
made_contexts = []
while True:
    result, handle = context_of_its_own(0)
    if result:
        break
    made_contexts.append(handle)
assert result == 2
each = (before - free()) // len(made_contexts)
assert each > 100 * MIB
assert len(made_contexts) == before // each
ok(cuda.cuCtxDestroy_v2(made_contexts.pop()))
ok(cuda.cuCtxSetCurrent(ctx))
assert free() >= each
""",
    )
