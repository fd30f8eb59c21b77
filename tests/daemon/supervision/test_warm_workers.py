"""Workers whose context is created before a client comes: clean, used once, never in the way (`make build` first)."""

from __future__ import annotations

import os
import signal

import pytest

from tests.daemon.running import process_exists, wait_until
from tests.shim.client import run

WARM = "limits.warm_workers = 1\n"
MEMORY = """
ctx = context()
free, total = c_size_t(), c_size_t()
ok(cuda.cuMemGetInfo_v2(byref(free), byref(total)))
print(total.value - free.value)
"""


def warm_pids(running) -> dict[str, list[int]]:
    return running.status()["warm_workers"]


def wait_warm(running, device: int = 0) -> list[int]:
    return wait_until(lambda: warm_pids(running).get(str(device)))


def taken(running) -> int:
    return running.status()["metrics"]["warm_workers_taken"]


def test_a_client_gets_the_context_that_was_made(start, tmp_path):
    host = start(worker=None, extra=f"cache_dir = '{tmp_path}/cache'\n{WARM}")
    [first] = wait_warm(host)
    wait_warm(host, 1)
    cold = run(str(host.endpoint), MEMORY, CUDA_VISIBLE_DEVICES="1")  # its device has a warm worker of its own
    wait_until(lambda: taken(host) == 1)
    warm = run(str(host.endpoint), MEMORY, CUDA_VISIBLE_DEVICES="0")
    assert taken(host) == 2
    assert warm == cold  # the memory of a warm worker's context is counted once
    host.wait_log(rf"session attached .*worker={first}")
    wait_until(lambda: not process_exists(first))  # no other client gets this worker
    assert wait_warm(host) != [first]


def switch_off(host) -> None:
    """Configure no warm workers, and wait until those that exist have ended."""
    host.config.write_text(host.config.read_text().replace(WARM, "limits.warm_workers = 0\n"))
    host.process.send_signal(signal.SIGHUP)
    host.wait_log("reloaded")
    wait_until(lambda: warm_pids(host) == {} and host.status()["workers"] <= 1)  # also a worker that still warms up


@pytest.mark.parametrize(
    "program",
    [
        """
        context()
        p = alloc(1 << 20)
        print(cuda.cuDevicePrimaryCtxRelease_v2(0))
        print(cuda.cuMemFree_v2(p))  # went with its context
        context()
        print(cuda.cuMemFree_v2(alloc(1 << 20)), cuda.cuDevicePrimaryCtxReset_v2(0))
        context()
        print(cuda.cuMemFree_v2(alloc(1 << 20)))
        """,
        """
        ok(cuda.cuInit(0))
        new(cuda.cuCtxCreate_v2, 0, 0)
        free, total = c_size_t(), c_size_t()
        ok(cuda.cuMemGetInfo_v2(byref(free), byref(total)))
        print(total.value - free.value)
        """,
    ],
    ids=["released and made again", "a context of the client's own"],
)
def test_it_behaves_as_one_made_for_the_client(start, tmp_path, program):
    host = start(worker=None, extra=f"cache_dir = '{tmp_path}/cache'\n{WARM}")
    wait_warm(host)
    warm = run(str(host.endpoint), program)
    switch_off(host)
    assert run(str(host.endpoint), program) == warm
    assert taken(host) == 1


def test_compiled_kernels_go_to_the_tenants_cache(start, tmp_path):
    host = start(worker=None, extra=f"cache_dir = '{tmp_path}/cache'\n{WARM}")
    wait_warm(host)
    ptx = (
        ".version 7.5\\n.target sm_75\\n.address_size 64\\n"
        ".visible .entry k(.param .u64 p) { .reg .u64 %rd<2>; ld.param.u64 %rd1, [p]; st.global.u32 [%rd1], 42; ret; }"
    )
    program = f"""
    context()
    kernel = new(cuda.cuModuleGetFunction, new(cuda.cuModuleLoadData, b'{ptx}'), b'k')
    p, value = alloc(4), c_uint()
    parameters = (c_void_p * 1)(ctypes.cast(ctypes.pointer(p), c_void_p))
    ok(cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, parameters, None))
    ok(cuda.cuMemcpyDtoH_v2(byref(value), p, c_size_t(4)))
    print(value.value)
    """
    assert run(str(host.endpoint), program) == "42\n"
    assert taken(host) == 1
    [tenant] = [path for path in (tmp_path / "cache").iterdir() if any(path.rglob("*.bin"))]
    assert tenant.name.startswith("uid")
    for path in tenant.rglob("*.bin"):
        path.unlink()
    host.config.write_text(host.config.read_text() + "limits.kernel_cache_nbytes = 0\n")
    host.process.send_signal(signal.SIGHUP)
    host.wait_log("reloaded")
    assert run(str(host.endpoint), program) == "42\n"
    assert not list(tenant.rglob("*.bin"))


def test_a_warm_simulator_has_one_thread_when_its_files_are_confined(start, tmp_path):
    host = start(worker=None, extra=f"cache_dir = '{tmp_path}/cache'\n{WARM}")
    [pid] = wait_warm(host)
    # Landlock holds for the calling thread and those it starts. A thread that was joined is listed a moment longer.
    wait_until(lambda: len(os.listdir(f"/proc/{pid}/task")) == 1)


def test_without_room_clients_are_served_all_the_same(start):
    host = start("cold", extra=WARM)
    host.wait_log('no warm worker device=0 why="no room on purpose"')
    with host.client() as client:
        client.hello()
        client.attach(0)
    assert taken(host) == 0
    assert host.status()["metrics"]["workers_started"] <= 5  # no endless retries


def test_a_warm_worker_that_dies_is_missed_by_nobody(start):
    host = start(extra=WARM)
    [pid] = wait_warm(host)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: "0" not in warm_pids(host))
    with host.client() as client:
        client.hello()
        client.attach(0)
        client.detach().sendall(b"hi")
        assert client.detach().recv(2) == b"hi"


def test_devices_that_do_not_exist_have_none(start):
    host = start(extra=WARM)
    wait_warm(host, 2)
    for device in (-1, 3, 63):
        with host.client() as client:
            client.hello()
            client.attach(device)
    assert taken(host) == 0
