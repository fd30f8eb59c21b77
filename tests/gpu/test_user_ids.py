"""Workers of a card have a user id for each tenant: memory is shared within one, and the driver's cache outlives an id.

`pytest -s` shows how long a second client of a tenant waits for its worker, whose driver starts only then.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from vgpud.cli.admin_client import AdminClient

from tests.daemon.ipc_client import IpcClient
from tests.daemon.running import wait_until
from tests.daemon.supervision.test_user_ids import ids_of
from tests.gpu.conftest import LIBRARIES, RemotedRun

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

# Loads a program that no earlier run has compiled; returns the seconds that it took.
LOAD = """
def load(number):
    steps = "".join(f"fma.rn.f32 %f{i % 8}, %f{(i + 1) % 8}, %f{(i + 3) % 8}, 0f3F{number:06x};" for i in range(20000))
    ptx = (".version 7.5\\n.target sm_75\\n.address_size 64\\n.visible .entry k(.param .u64 p) {"
           ".reg .f32 %f<8>; .reg .u64 %rd; ld.param.u64 %rd, [p];" + steps + "st.global.f32 [%rd], %f0; ret; }")
    began = time.monotonic()
    new(cuda.cuModuleLoadData, ptx.encode())
    return time.monotonic() - began
"""


def folder_of(run: RemotedRun) -> Path:
    return Path(run.env["VGPU_ENDPOINT"].removeprefix("unix:")).parent


def admin(run: RemotedRun) -> AdminClient:
    return AdminClient(folder_of(run) / "admin.sock")


def client(run: RemotedRun) -> IpcClient:
    return IpcClient(run.env["VGPU_ENDPOINT"], LD_LIBRARY_PATH=str(LIBRARIES))


def worker(run: RemotedRun) -> int:
    """The process that serves the youngest session."""
    return max(admin(run).get("status")["sessions"], key=lambda session: session["session"])["worker_pid"]


def test_workers_of_one_tenant_share_an_id_that_no_other_process_has(remoted_run: RemotedRun) -> None:
    if missing := [each for each in admin(remoted_run).get("status")["isolation_missing"] if "user id" in each]:
        pytest.skip(missing[0])
    one = client(remoted_run)
    first = ids_of(worker(remoted_run))[0]
    began = time.monotonic()
    two = client(remoted_run)
    print(f"a second client of the tenant has a context after {time.monotonic() - began:.3f} s")
    assert ids_of(worker(remoted_run))[0] == first != 0
    code, handle = one(f"get_memory({one('memory(4096)')})")
    assert code == 0
    code, address = two(f"open_memory({handle})")
    assert code == 0
    assert two(f"put({address}, b'of one tenant')") == 0
    spares = wait_until(lambda: admin(remoted_run).get("status")["spare_workers"], 60)
    assert not {ids_of(pid)[0] for pid in spares} & {0, first}
    for each in (one, two):
        each.end()


def test_what_the_driver_has_compiled_serves_the_tenants_next_id(remoted_run: RemotedRun) -> None:
    number, ids, seconds = time.time_ns() % (1 << 23), [], []
    for _ in range(2):
        wait_until(lambda: not admin(remoted_run).get("status")["sessions"], 60)
        wait_until(lambda: admin(remoted_run).get("status")["spare_workers"], 60)
        one = client(remoted_run)
        ids.append(ids_of(worker(remoted_run))[0])
        seconds.append(one(f"exec({LOAD!r}, globals()) or load({number})"))
        one.end()
    kept = sorted(folder_of(remoted_run).rglob("nvidia/**/*"))
    print(f"ids {ids}, loaded in {seconds} s; files:", *(f"{path.stat().st_mode:o} {path}" for path in kept), sep="\n")
    assert seconds[1] < seconds[0] / 2
