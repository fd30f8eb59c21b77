"""`memory_mib` of a share on the cuda backend: exact for what programs allocate and for what the driver takes for them,
shown as the memory of the device, and shared by the sessions of a tenant."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.daemon.devices.test_ledger import Client
from tests.daemon.running import Running, wait_until
from tests.daemon.tenancy import test_quota
from tests.daemon.tenancy.test_quota import PATHS, SHARES, run_alone
from tests.relayed.conftest import LIBRARIES, WORKER, start
from tests.shim.client import PRELUDE, environment

MIB, OUT_OF_MEMORY = 1 << 20, 2
CONFIG = (
    f"{SHARES}[[shares]]\nname = 'whole'\n[[tokens]]\nname = 'free'\nvalue = 'free-free-free-free'\nshare = 'whole'\n"
)


@pytest.fixture(scope="module")
def running(driver: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """vgpud B, whose sessions have a share of 4 GiB, or with the token `free` none."""
    config = (
        f"backend = 'cuda'\nlibcuda = '{LIBRARIES}/libcuda.so.1'\n"
        f"worker_command = {[sys.executable, str(WORKER), '--backend', 'cuda']!r}\n{CONFIG}"
    )
    running = start(
        tmp_path_factory.mktemp("limit"),
        "b",
        config,
        {"VGPU_ENDPOINT": str(driver.endpoint), "LD_LIBRARY_PATH": str(LIBRARIES)},
    )
    yield running
    running.end()


@pytest.mark.parametrize("path", PATHS)
def test_every_way_of_allocating_is_counted(running: Running, path: str) -> None:
    test_quota.test_every_way_of_allocating_is_counted(running, path)


def test_the_last_byte_is_given_out(running: Running) -> None:
    run_alone(
        running,
        """
whole = c_size_t()
ok(cuda.cuDeviceTotalMem_v2(byref(whole), 0))
assert whole.value == LIMIT_MIB * MIB
left = free()
assert 100 * MIB < whole.value - left < 1024 * MIB  # the context
ok(made(cuda.cuMemAlloc_v2, c_size_t(left // MIB * MIB - MIB))[0])
ok(made(cuda.cuMemAlloc_v2, c_size_t(free() - 512))[0])
ok(made(cuda.cuMemAlloc_v2, c_size_t(1))[0])  # counts 512 bytes
assert free() == 0
assert made(cuda.cuMemAlloc_v2, c_size_t(1))[0] == 2
assert made(cuda.cuMemAlloc_v2, c_size_t(1 << 63))[0] == 2
assert made(cuda.cuMemAllocPitch_v2, byref(c_size_t()), c_size_t(1 << 40), c_size_t(1 << 40), 4)[0] == 2
""",
    )


def test_a_context_frees_what_was_allocated_in_it(running: Running) -> None:
    run_alone(
        running,
        """
before = free()
ok(made(cuda.cuMemAlloc_v2, c_size_t(64 * MIB))[0])
_, own = made(cuda.cuCtxCreate_v2, 0, 0)
inside = free()
assert inside < before - 164 * MIB
ok(made(cuda.cuMemAlloc_v2, c_size_t(512 * MIB))[0])
ok(made(cuda.cuArray3DCreate_v2, byref(array(256 * MIB)))[0])
assert free() == inside - 768 * MIB
ok(cuda.cuCtxDestroy_v2(own))
ok(cuda.cuCtxSetCurrent(ctx))
assert 0 <= before - 64 * MIB - free() <= 4 * MIB  # blocks of 2 MiB that a card's driver keeps
ok(cuda.cuDevicePrimaryCtxReset_v2(0))
ctx = context()
assert -4 * MIB <= before - free() <= 4 * MIB
""",
    )


def test_physical_memory_counts_until_nothing_maps_it(running: Running) -> None:
    run_alone(
        running,
        """
class Access(ctypes.Structure):
    _fields_ = [("type", c_int), ("device", c_int), ("flags", c_int)]
before = free()
result, physical = made(cuda.cuMemCreate, c_size_t(512 * MIB), byref(Props(1, 0, 1, 0)), c_uint64(0))
ok(result)
_, place = made(cuda.cuMemAddressReserve, c_size_t(1024 * MIB), c_size_t(0), c_uint64(0), c_uint64(0))
for offset in (0, 512):
    ok(cuda.cuMemMap(c_uint64(place.value + offset * MIB), c_size_t(512 * MIB), c_size_t(0), physical, c_uint64(0)))
ok(cuda.cuMemSetAccess(place, c_size_t(1024 * MIB), byref(Access(1, 0, 3)), c_size_t(1)))
ok(cuda.cuMemRelease(physical))
assert free() == before - 512 * MIB, "it is mapped"
ok(cuda.cuMemUnmap(c_uint64(place.value + 512 * MIB), c_size_t(512 * MIB)))
assert free() == before - 512 * MIB
ok(cuda.cuMemUnmap(place, c_size_t(512 * MIB)))
assert free() == before
""",
    )


def test_pools_count_what_they_have_reserved(running: Running) -> None:
    """Of a driver that keeps memory in pools: tests/daemon/executor/test_limit.py."""
    run_alone(
        running,
        """
class PoolProps(ctypes.Structure):
    _fields_ = [("kind", c_int), ("handles", c_int), ("type", c_int), ("id", c_int), ("rest", c_uint64 * 9)]
before = free()
mine, p, q = c_void_p(), c_uint64(), c_uint64(7)
ok(cuda.cuMemPoolCreate(byref(mine), byref(PoolProps(1, 0, 1, 0))))
ok(cuda.cuMemAllocFromPoolAsync(byref(p), c_size_t(2048 * MIB), mine, streams))
reserved = c_uint64()
ok(cuda.cuMemPoolGetAttribute(mine, 5, byref(reserved)))
assert before - free() == reserved.value >= 2048 * MIB
assert cuda.cuMemAllocFromPoolAsync(byref(q), c_size_t(2560 * MIB), mine, streams) == 2
assert q.value == 7
assert cuda.cuMemAllocAsync(byref(q), c_size_t(2560 * MIB), streams) == 2
ok(cuda.cuDeviceSetMemPool(0, mine))
ok(cuda.cuMemPoolDestroy(mine))
assert free() == before - 2048 * MIB, "its allocation is used"
ok(cuda.cuMemAllocAsync(byref(q), c_size_t(1024 * MIB), streams))  # of the device's own pool
ok(cuda.cuMemsetD8_v2(p, 7, c_size_t(4096)))
ok(cuda.cuMemFreeAsync(p, streams))
ok(cuda.cuMemFreeAsync(q, streams))
ok(cuda.cuStreamSynchronize(streams))
assert free() == before
""",
    )


def test_graphs_that_allocate_count_from_instantiation_on(running: Running) -> None:
    run_alone(
        running,
        """
class Node(ctypes.Structure):
    _fields_ = [("kind", c_int), ("handles", c_int), ("type", c_int), ("id", c_int), ("rest", c_uint64 * 9),
                ("access", c_void_p), ("count", c_size_t), ("nbytes", c_size_t), ("dptr", c_uint64)]
before = free()
def graph(nbytes):
    made_graph, allocation, end, params = c_void_p(), c_void_p(), c_void_p(), Node(1, 0, 1, 0, nbytes=nbytes)
    ok(cuda.cuGraphCreate(byref(made_graph), 0))
    ok(cuda.cuGraphAddMemAllocNode(byref(allocation), made_graph, None, c_size_t(0), byref(params)))
    ok(cuda.cuGraphAddMemFreeNode(byref(end), made_graph, byref(allocation), c_size_t(1), c_uint64(params.dptr)))
    executable = c_void_p(7)
    result = cuda.cuGraphInstantiateWithFlags(byref(executable), made_graph, c_uint64(0))
    ok(cuda.cuGraphDestroy(made_graph))  # with the simulator as the driver a graph has memory, too
    return result, executable
result, one = graph(1024 * MIB)
ok(result)
assert free() == before - 1024 * MIB
for _ in range(3):
    ok(cuda.cuGraphLaunch(one, streams))
ok(cuda.cuStreamSynchronize(streams))
assert free() == before - 1024 * MIB
result, two = graph(3584 * MIB)
assert (result, two.value) == (2, 7)
ok(cuda.cuGraphExecDestroy(one))
result, two = graph(3072 * MIB)
ok(result)
ok(cuda.cuGraphExecDestroy(two))
ok(cuda.cuDeviceGraphMemTrim(0))
assert free() == before
# as captured allocations do
ok(cuda.cuStreamBeginCapture_v2(streams, 2))
p = c_uint64()
ok(cuda.cuMemAllocAsync(byref(p), c_size_t(512 * MIB), streams))
ok(cuda.cuMemFreeAsync(p, streams))
captured = c_void_p()
ok(cuda.cuStreamEndCapture(streams, byref(captured)))
assert free() == before
ok(cuda.cuGraphInstantiateWithFlags(byref(one), captured, c_uint64(0)))
assert free() == before - 512 * MIB
""",
    )


def test_the_heap_of_kernels_counts(running: Running) -> None:
    run_alone(
        running,
        """
before = free()
ok(cuda.cuCtxSetLimit(2, c_size_t(1032 * MIB)))
assert free() == before - 1024 * MIB  # a context has 8 MiB of its own
assert cuda.cuCtxSetLimit(2, c_size_t(8192 * MIB)) == 2
assert free() == before - 1024 * MIB
ok(cuda.cuCtxSetLimit(2, c_size_t(8 * MIB)))
assert free() == before
""",
    )


def clients_of(running: Running, *tokens: str) -> list[Client]:
    found = [
        Client(str(running.endpoint), **({"VGPU_TOKEN": f"{name}-{name}-{name}-{name}"} if name else {}))
        for name in tokens
    ]
    for client in found:
        client("free")
    return found


def test_a_tenants_sessions_share_it_and_another_tenant_has_the_card(running: Running) -> None:
    wait_until(lambda: running.admin.get("sessions")["sessions"] == [])
    first, second, other = clients = clients_of(running, "", "", "free")
    assert first("total") == 4
    assert second("free") == 2  # there are two contexts
    assert first("take 1") == 0
    assert second("free") == 1
    assert second("take 2") == OUT_OF_MEMORY
    assert other("total") > 70
    assert other("take 40") == 0
    assert second("take 1") == 0
    listed: dict[str, Any] = {each["pid"]: each["memory_nbytes"] for each in running.admin.get("sessions")["sessions"]}
    assert sorted(((each or [None])[0] or 0) >> 30 for each in listed.values()) == [0, 1, 1]
    first.kill()
    wait_until(lambda: second("free") == 2)
    for client in clients:
        client.kill()


NVML = """
nvml = ctypes.CDLL({library!r})
context()
alloc(1 << 30)
ok(nvml.nvmlInit_v2())
device, memory, more = c_void_p(), (c_uint64 * 3)(), (c_uint64 * 5)(2 << 24 | 40)
ok(nvml.nvmlDeviceGetHandleByIndex_v2(0, byref(device)))
ok(nvml.nvmlDeviceGetMemoryInfo(device, memory))
ok(nvml.nvmlDeviceGetMemoryInfo_v2(device, more))
assert [*memory] == [more[1], more[3], more[4]] == [4096 << 20, memory[1], (4096 << 20) - memory[1]]
print(more[2], more[4] >> 30)
"""


def test_nvml_shows_the_share(running: Running) -> None:
    wait_until(lambda: running.admin.get("sessions")["sessions"] == [])
    program = NVML.format(library=str(LIBRARIES / "libnvidia-ml.so.1"))
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + program],
        env=environment(str(running.endpoint)),
        capture_output=True,
        text=True,
    )
    assert done.stdout == "0 1\n", done.stderr


def test_contexts_are_counted(running: Running) -> None:
    test_quota.test_contexts_are_counted(running)


def test_a_module_that_is_too_large_is_not_loaded(running: Running) -> None:
    run_alone(
        running,
        """
before = free()
result, one = made(cuda.cuModuleLoadData, IMAGE % (2048 * MIB))
ok(result)
used = before - free()
assert 2048 * MIB <= used <= 2052 * MIB
library = c_void_p(7)
assert cuda.cuLibraryLoadData(byref(library), IMAGE % (2048 * MIB), None, None, 0, None, None, 0) in (0, 2)
assert made(cuda.cuModuleLoadData, IMAGE % (2048 * MIB))[0] == 2
assert made(cuda.cuMemAlloc_v2, c_size_t(2048 * MIB))[0] == 2
ok(cuda.cuModuleUnload(one))
if library.value != 7:
    ok(cuda.cuLibraryUnload(library))
assert 0 <= before - free() <= 4 * MIB
""",
    )


def test_a_program_reads_once_why_it_is_refused(running: Running) -> None:
    program = """
context()
p = c_uint64()
for _ in range(3):
    assert cuda.cuMemAlloc_v2(byref(p), c_size_t(5 << 30)) == 2
"""
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + program],
        env=environment(str(running.endpoint)),
        capture_output=True,
        text=True,
    )
    [line] = [line for line in done.stderr.splitlines() if "the tenant's share has 4096 MiB" in line]
    assert "5368709120 bytes are not allocated" in line
